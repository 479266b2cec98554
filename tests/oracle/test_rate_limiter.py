"""Rate limits beside the real Triton: what is refused, in which words, and how often each model has its turn (20.*)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perf.oracle.server import Kind, Server
from tests.oracle.again import again
from tests.oracle.cases.table import Request, post, tensor
from tests.oracle.exchange import converse

pytestmark = pytest.mark.alone

CODE = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
    def execute(self, requests):
        with open("TOLD", "a") as file:
            file.write(self.name)
        time.sleep(0.02)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", np.zeros(1, "f4"))]) for _ in requests]
"""
IO = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
ON = "--rate-limit=execution_count"
KINDS: tuple[Kind, Kind] = ("triton", "tisfast")


def resource(count: int, name: str = "R1", *, shared: bool = False) -> str:
    return f'resources [ {{ name: "{name}" count: {count} {"global: true" if shared else ""} }} ]'


def group(*resources: str, priority: int = 0) -> str:
    return f"instance_group [ {{ kind: KIND_CPU rate_limiter {{ {' '.join(resources)} priority: {priority} }} }} ]"


def written(folder: Path, models: dict[str, str]) -> Path:
    """A repository of these models (name: what its config.pbtxt says beside IO)."""
    for name, config in models.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.py").write_text(CODE.replace("TOLD", str(folder.parent / "told")))
        (folder / name / "config.pbtxt").write_text(IO + config)
    return folder


def started(kind: Kind, repository: Path, *flags: str) -> Server:
    return Server(kind, [repository], ["--exit-on-error=false", *flags], "/v2/health/live")


def index(server: Server) -> dict[str, tuple[str, str]]:
    """State and reason of each model."""
    answer = converse(server.http, (Request("POST", "/v2/repository/index"),))[0]
    return {each["name"]: (each.get("state", ""), each.get("reason", "")) for each in json.loads(answer.body)}


REFUSED = {
    "global and of a device": ({"m": group(resource(1, shared=True), resource(2))}, []),
    "less than one needs": ({"m": group(resource(4))}, ["--rate-limit-resource=R1:2"]),
    "less on its device": ({"m": group(resource(4))}, ["--rate-limit-resource=R1:2:0"]),
    "on another device": ({"m": group(resource(4))}, ["--rate-limit-resource=R1:8:1"]),
    "less of a global one": ({"m": group(resource(4, shared=True))}, ["--rate-limit-resource=R1:2"]),
    "not named": ({"m": group(resource(4, "R2"))}, ["--rate-limit-resource=R1:8"]),
    "global, said of a device": ({"m": group(resource(4, shared=True))}, ["--rate-limit-resource=R1:8:0"]),
    "enough": ({"m": group(resource(4))}, ["--rate-limit-resource=R1:4"]),
    "none of nothing": ({"m": group(resource(0))}, ["--rate-limit-resource=R1:0"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    models, flags = REFUSED[name]
    repository = written(tmp_path / "models", models)
    told = []
    for kind in KINDS:
        with started(kind, repository, ON, *flags) as server:
            told.append(index(server))
    assert told[1] == told[0]


def turns(kind: Kind, repository: Path, asked: Sequence[str]) -> str:
    """The models' names in the order of their executions, when all are asked at once."""
    told = repository.parent / "told"
    told.write_text("")
    body = {"inputs": [tensor("A", "FP32", [1], [1])]}
    with started(kind, repository, ON) as server, ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda name: converse(server.http, (post(name, body),))[0].status, asked))
    assert answers == [200] * len(asked)
    return told.read_text()


@pytest.mark.parametrize("priorities", [(0, 0), (1, 2), (1, 3)])
def test_turns_come_as_often(priorities: tuple[int, int], tmp_path: Path) -> None:
    a, b = priorities
    models = {"a": group(resource(1), priority=a), "b": group(resource(1), priority=b)}
    repository = written(tmp_path / "models", models)

    @again
    def check() -> None:
        theirs, ours = (turns(kind, repository, ["a", "b"] * 12) for kind in KINDS)
        assert abs(theirs[:12].count("a") - ours[:12].count("a")) <= 1

    check()
