"""Rows whose figures the tests choose."""

from __future__ import annotations

from typing import Any

from tisfast.analyze.trials import Served, Trial
from tisfast.analyze.variants import Variant


def variant(**settings: int | str) -> Variant:
    return Variant(tuple(settings.items()))


def trial(settings: dict[str, int | str], level: float, throughput: float, p99: float = 10.0, **more: Any) -> Trial:
    latency = {"avg": p99 / 2, "p50": p99 / 2, "p90": p99, "p95": p99, "p99": p99}
    return Trial(
        Variant(tuple(settings.items())),
        "concurrency",
        level,
        throughput=throughput,
        latency_ms=latency,
        requests=1000,
        **more,
    )


def served(queue: float = 100, infer: float = 900, inferences: int = 100, executions: int = 100) -> Served:
    return Served(
        queue, 0, infer, 0, queue + infer, inferences, executions, {str(inferences // executions): executions}
    )
