"""Models that call models: the examples of examples/bls, served by both, with equal answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perf.oracle.server import Server
from tests.oracle.cases.table import post, tensor
from tests.oracle.exchange import converse

EXAMPLES = Path(__file__).parents[2] / "examples/bls"
FOUR = [tensor("INPUT0", "FP32", [4], [1, 2, 3, 4]), tensor("INPUT1", "FP32", [4], [10, 20, 30, 40])]
REQUESTS = [
    *(post(model, {"inputs": FOUR}) for model in ("bls_sync", "bls_async") for _ in range(3)),
    *(post("bls_decoupled", {"inputs": [tensor("COUNT", "INT32", [1], [n])]}) for n in (0, 1, 50)),
    post("bls_sync", {"inputs": FOUR[:1]}),
]


def answers(kind: Any) -> list[tuple[int, Any]]:
    with Server(kind, [EXAMPLES]) as server:
        return [(answer.status, json.loads(answer.body)) for answer in converse(server.http, REQUESTS)]


def test_examples_answer_alike() -> None:
    ours, theirs = answers("tisfast"), answers("triton")
    assert [status for status, _ in ours] == [200] * 9 + [400]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine[0] == other[0]
        if mine[0] == 200:
            assert mine[1]["outputs"] == other[1]["outputs"]
