"""Statistics as Triton's JSON."""

from __future__ import annotations

from tests.operations.helpers import Served
from tisfast.operations.statistics import model_statistics

TALLIES = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"]


def of(served):
    return model_statistics([served.runtime])["model_stats"][0]


def test_a_fresh_model_has_all_keys_at_zero():
    stats = of(Served())
    assert list(stats) == [
        "name",
        "version",
        "last_inference",
        "inference_count",
        "execution_count",
        "inference_stats",
        "response_stats",
        "batch_stats",
        "memory_usage",
    ]
    assert list(stats["inference_stats"]) == TALLIES
    assert stats["inference_stats"]["success"] == {"count": 0, "ns": 0}
    assert (stats["inference_count"], stats["batch_stats"]) == (0, [])


def test_inferences_are_counted_by_batch_and_failures_apart():
    served = Served(max_batch=8)
    served.infer(batch=3)
    served.infer(batch=3)
    served.infer(batch=1)
    served.infer(status=2)
    stats = of(served)
    assert (stats["inference_count"], stats["execution_count"]) == (7, 4)
    assert stats["inference_stats"]["success"]["count"] == 3
    assert stats["inference_stats"]["fail"]["count"] == 1
    assert stats["inference_stats"]["queue"]["count"] == 3
    assert [(b["batch_size"], b["compute_infer"]["count"]) for b in stats["batch_stats"]] == [(1, 2), (3, 2)]
