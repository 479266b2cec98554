"""Batches that form on an idle instance within a queue delay, by preferred sizes, beside the real Triton.

A play is the rows of some requests that come one after the other.  A few of them are drawn here; all 1,092 take five
minutes: TISFAST_BATCHER_PLAYS=all.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from perf.oracle.server import Kind, Server
from tests.oracle.again import TRIES
from tests.oracle.exchange import Request, converse

pytestmark = pytest.mark.alone

MODEL: Final = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        with open("LOG", "a") as log:
            log.write(json.dumps([int(r.request_id()) for r in requests]) + "\\n")
        inputs = [pb_utils.get_input_tensor_by_name(request, "A") for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", each.as_numpy())]) for each in inputs]
"""
CONFIG: Final = """
backend: "python"
max_batch_size: {rows_max}
dynamic_batching {{ max_queue_delay_microseconds: 1000000 {batching} }}
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
input [ {{ name: "A" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "B" data_type: TYPE_INT32 dims: [ 1 ] }} ]
"""
MODELS: Final[dict[str, tuple[int, str, int]]] = {  # max_batch_size, dynamic_batching, instances
    "no_preferred": (8, "", 1),
    "preferred_8": (8, "preferred_batch_size: [ 8 ]", 1),
    "preferred_2_6_of_6": (6, "preferred_batch_size: [ 2, 6 ]", 1),
    "preferred_2_6": (8, "preferred_batch_size: [ 2, 6 ]", 1),
    "preferred_2_6_in_order": (8, "preferred_batch_size: [ 2, 6 ] preserve_ordering: true", 1),
    "preferred_2_6_twice": (8, "preferred_batch_size: [ 2, 6 ]", 2),
    "preferred_4_6": (8, "preferred_batch_size: [ 4, 6 ]", 1),
    "preferred_3_7": (8, "preferred_batch_size: [ 3, 7 ]", 1),
    "preferred_2_4": (8, "preferred_batch_size: [ 2, 4 ]", 1),
    "preferred_4": (8, "preferred_batch_size: [ 4 ]", 1),
}
PLAYS: Final = 5  # of each model
APART_SECONDS: Final = 0.08
Play = tuple[int, ...]


def all_plays(model: str) -> list[Play]:
    """Every pair of sizes, 36 of three requests and 12 of five."""
    drawn, sizes = random.Random(34), range(1, MODELS[model][0] + 1)
    longer = [tuple(drawn.choices(sizes, k=count)) for count, times in ((3, 36), (5, 12)) for _ in range(times)]
    return [*itertools.product(sizes, repeat=2), *longer]


def plays_of(model: str) -> list[Play]:
    found = all_plays(model)
    return found if os.environ.get("TISFAST_BATCHER_PLAYS") == "all" else random.Random(model).sample(found, PLAYS)


class Played:
    """One server and where its models write."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.folder = folder
        for name, (rows_max, batching, instances) in MODELS.items():
            version = folder / "models" / name / "1"
            version.mkdir(parents=True)
            (version / "model.py").write_text(MODEL.replace("LOG", str(folder / f"{name}.log")))
            config = CONFIG.format(rows_max=rows_max, batching=batching, instances=instances)
            (version.parent / "config.pbtxt").write_text(config)
        self.server = Server(kind, [folder / "models"])

    def batches(self, model: str, play: Play) -> list[list[int]]:
        """The requests of each batch; in order, where one instance writes them."""
        log = self.folder / f"{model}.log"
        log.write_text("")
        with ThreadPoolExecutor(len(play)) as pool:
            answers = []
            for number, rows in enumerate(play):
                answers.append(pool.submit(self.ask, model, number, rows))
                time.sleep(APART_SECONDS)  # they arrive in this order
            assert [each.result() for each in answers] == [200] * len(play)
        found = [json.loads(line) for line in log.read_text().splitlines()]
        return found if MODELS[model][2] == 1 else sorted(found)

    def ask(self, model: str, number: int, rows: int) -> int:
        tensor = {"name": "A", "datatype": "INT32", "shape": [rows, 1], "data": [number] * rows}
        body = json.dumps({"id": str(number), "inputs": [tensor]}).encode()
        return converse(self.server.http, (Request("POST", f"/v2/models/{model}/infer", (), body),))[0].status


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Played]]:
    kinds: tuple[Kind, ...] = ("triton", "tisfast")
    servers = [Played(kind, tmp_path_factory.mktemp(kind)) for kind in kinds]
    with servers[0].server, servers[1].server:
        yield servers


def differing(both: list[Played], model: str, plays: list[Play]) -> dict[Play, list[list[list[int]]]]:
    """Plays whose batches are not the same, with those of each server."""
    found = {play: [played.batches(model, play) for played in both] for play in plays}
    return {play: batches for play, batches in found.items() if batches[0] != batches[1]}


def test_an_idle_instance_gets_triton_s_batches(both: list[Played]) -> None:
    """All models at once, as each play waits for its delay.  What differs is played again: the machine may be busy."""
    left = {model: plays_of(model) for model in MODELS}
    for _ in range(TRIES):
        with ThreadPoolExecutor(len(left)) as pool:
            tried = {model: pool.submit(differing, both, model, plays) for model, plays in left.items()}
        found = {model: each.result() for model, each in tried.items() if each.result()}
        if not found:
            return
        left = {model: list(plays) for model, plays in found.items()}
    assert not found
