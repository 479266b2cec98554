"""Which requests meet in a batch, and in which order they run, beside the real Triton."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from perf.oracle.server import Kind, Server
from tests.oracle.again import again
from tests.oracle.batching_differences import DELIBERATE
from tests.oracle.exchange import Request, converse

pytestmark = pytest.mark.alone

MODEL: Final = """
import json, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        with open("LOG", "a") as log:
            log.write(json.dumps([r.request_id() for r in requests]) + "\\n")
        answers = []
        for request in requests:
            ms = pb_utils.get_input_tensor_by_name(request, "MS")
            time.sleep(0 if ms is None else ms.as_numpy().max() / 1000)
            rows = pb_utils.get_input_tensor_by_name(request, "A").shape()[0]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("X", np.zeros((rows, 1), "i4"))]))
        return answers
"""
INPUTS: Final = """
input [
  { name: "A" data_type: TYPE_FP32 dims: [ -1 ] %s },
  { name: "MS" data_type: TYPE_UINT32 dims: [ 1 ] optional: true },
  { name: "B" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
]
output [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
LEVELS: Final = "priority_levels: 3 default_priority_level: 2"
DELAY: Final = "timeout_action: DELAY default_timeout_microseconds: 500000"
MODELS: Final = {  # max_batch_size, dynamic_batching, ragged
    "levels_alone": (1, LEVELS, False),
    "levels": (8, LEVELS, False),
    "preferred": (8, "preferred_batch_size: [ 4 ]", False),
    "two_preferred": (8, "preferred_batch_size: [ 2, 6 ]", False),
    "waits": (8, "preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 300000", False),
    "delays": (4, f"default_queue_policy {{ {DELAY} }}", False),
    "delays_levels": (4, f"{LEVELS} default_queue_policy {{ {DELAY} }}", False),
    "plain": (8, "", False),
    "ragged": (8, "", True),
    "bounded": (1, f"{LEVELS} priority_queue_policy {{ key: 1 value {{ max_queue_size: 1 }} }}", False),
}
SEQUENCES: Final[dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]]] = {
    "lower numbers first": ("levels_alone", [("a3", {"priority": 3}), ("b", {}), ("c1", {"priority": 1})]),
    "no level is the default": ("levels", [("a3", {"priority": 3}), ("b2", {"priority": 2}), ("c0", {"priority": 0}),
                                           ("d9", {"priority": 9}), ("e", {}), ("f2", {"priority": 2})]),
    "batches over all levels": ("levels", [("a3", {"priority": 3}), ("b2", {"priority": 2}), ("c1", {"priority": 1}),
                                           ("d1", {"priority": 1})]),
    "a preferred size": ("preferred", [(id, {}) for id in "abcdef"]),
    "twice a preferred size": ("preferred", [(id, {}) for id in "abcdefgh"]),
    "between two preferred sizes": ("two_preferred", [(id, {}) for id in "abcde"]),
    "the largest preferred size, then more": ("two_preferred", [(id, {}) for id in "abcdefg"]),
    "the largest preferred size within a delay": ("waits", [(id, {}) for id in "abcdef"]),
    "less than a preferred size": ("preferred", [(id, {}) for id in "abc"]),
    "less than a preferred size, overdue": ("waits", [(id, {}) for id in "abc"]),
    "delayed ones last": ("delays", [("a", {}), ("b", {"then": 0.6}), ("c", {}), ("d", {})]),
    "delayed ones last in their level": ("delays_levels", [("a2", {"priority": 2}), ("b1", {"priority": 1, "then": .6}),
                                                           ("c2", {"priority": 2}), ("d1", {"priority": 1})]),
    "other optional inputs": ("plain", [("a", {}), ("b", {}), ("cx", {"b": True}), ("dx", {"b": True}), ("e", {})]),
    "other shapes": ("plain", [("a", {}), ("b", {}), ("c", {"elements": 3}), ("d", {"elements": 3}), ("e", {})]),
    "ragged": ("ragged", [("a", {}), ("b", {}), ("c", {"elements": 3}), ("d", {"b": True})]),
    "a bound of one level": ("bounded", [("a1", {"priority": 1}), ("b1", {"priority": 1}), ("c", {}), ("d", {})]),
}  # fmt: skip


PLAYS_MAX: Final = 5
Played = tuple[list[list[str]], dict[str, Any]]
"""Batches, each the ids of its requests, and errors by request."""


class Pair:
    """One server and where its models write."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.folder = folder
        for name, (size, batching, ragged) in MODELS.items():
            version = folder / "models" / name / "1"
            version.mkdir(parents=True)
            (version / "model.py").write_text(MODEL.replace("LOG", str(folder / f"{name}.log")))
            text = f'backend: "python" max_batch_size: {size} dynamic_batching {{ {batching} }}'
            inputs = INPUTS % ("allow_ragged_batch: true" if ragged else "")
            (version.parent / "config.pbtxt").write_text(text + inputs)
        self.server = Server(kind, [folder / "models"], [])

    def play(self, name: str, requests: list[tuple[str, dict[str, Any]]]) -> Played:
        """Send while one executes: the batches that ran after it, and the errors by request."""
        log = self.folder / f"{name}.log"
        log.write_text("")
        # Without prefetch 2.51 takes half a second to each next batch, and nobody waits for an answer that long.
        ms = 900 if name == "waits" or any("then" in what for _, what in requests) else 400
        with ThreadPoolExecutor(len(requests) + 1) as pool:
            answers = {"run": pool.submit(self.ask, name, "run", ms=ms)}
            while not log.read_text():
                time.sleep(0.005)  # the model tells through a file
            for id, what in requests:
                then = what.get("then", 0.02)
                answers[id] = pool.submit(self.ask, name, id, **{k: v for k, v in what.items() if k != "then"})
                time.sleep(then)  # they arrive in this order
            results = {id: answer.result() for id, answer in answers.items()}
        ran = [json.loads(line) for line in log.read_text().splitlines()]
        return ran[1:], {id: result for id, result in results.items() if result[0] != 200}

    def ask(
        self, name: str, id: str, ms: int = 0, elements: int = 2, b: bool = False, priority: int | None = None
    ) -> tuple[int, str]:
        inputs = [{"name": "A", "datatype": "FP32", "shape": [1, elements], "data": [1.0] * elements}]
        if ms:
            inputs.append({"name": "MS", "datatype": "UINT32", "shape": [1, 1], "data": [ms]})
        if b:
            inputs.append({"name": "B", "datatype": "FP32", "shape": [1, 1], "data": [1.0]})
        parameters = {} if priority is None else {"priority": priority}
        body = json.dumps({"id": id, "inputs": inputs, "parameters": parameters}).encode()
        answer = converse(self.server.http, (Request("POST", f"/v2/models/{name}/infer", (), body),))[0]
        return answer.status, answer.body.decode() if answer.status != 200 else ""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pair]]:
    kinds: tuple[Kind, ...] = ("triton", "tisfast")
    servers = [Pair(kind, tmp_path_factory.mktemp(kind)) for kind in kinds]
    with servers[0].server, servers[1].server:
        yield servers


def usual(triton: Pair, case: str) -> Played:
    """Two equal plays of the real one.  It hands a request out before the next has come in one of 120 plays."""
    plays = [triton.play(*SEQUENCES[case])]
    while plays.count(plays[-1]) < 2:
        assert len(plays) < PLAYS_MAX, f"the real Triton does something else each time: {plays}"
        plays.append(triton.play(*SEQUENCES[case]))
    return plays[-1]


def batches(played: Played) -> list[str]:
    return ["".join(batch) for batch in played[0]]


@pytest.mark.parametrize("case", DELIBERATE)
@again
def test_where_batches_differ_they_do_as_listed(case: str, pair: list[Pair]) -> None:
    triton, tisfast = pair
    assert (batches(usual(triton, case)), batches(tisfast.play(*SEQUENCES[case]))) == DELIBERATE[case][1:]


@pytest.mark.parametrize("case", [case for case in SEQUENCES if case not in DELIBERATE])
@again
def test_the_same_requests_meet_in_the_same_order(case: str, pair: list[Pair]) -> None:
    triton, tisfast = pair
    assert tisfast.play(*SEQUENCES[case]) == usual(triton, case)
