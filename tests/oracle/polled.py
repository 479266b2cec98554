"""Models of a polled repository, written in one step, and what a client sees of them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from perf.oracle.server import Kind, Server
from tests.oracle.cases.table import Request, post, tensor
from tests.oracle.exchange import converse

KINDS: Final[tuple[Kind, ...]] = ("triton", "tisfast")
ONE_EACH: Final = (pytest.param("triton", marks=pytest.mark.reference), "tisfast")
"""For the parameters of what is said of each of them by itself."""
SECONDS_MAX: Final = 60
TENSORS: Final = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
CODE: Final = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "A").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", a + {number})]) for a in inputs]
"""
CONFIG: Final = 'backend: "python"' + TENSORS


class Facts(NamedTuple):
    """What a client sees of a model.  state: of its versions in the index, with the reason where there is one."""

    adds: float | str
    states: dict[str, str]
    ready: bool


def write(folder: Path, number: int, version: str = "1", code: str = CODE, config: str = CONFIG) -> None:
    """Complete in one step, so that Triton does not see half of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged = folder.parent.parent / "staged"
    shutil.rmtree(staged, ignore_errors=True)
    if folder.exists():
        shutil.copytree(folder, staged)
    (staged / version).mkdir(parents=True, exist_ok=True)
    (staged / version / "model.py").write_text(code.format(number=number))
    (staged / "config.pbtxt").write_text(config)
    old = folder.parent.parent / "old"
    if folder.exists():
        folder.rename(old)
    staged.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def write_ensemble(folder: Path, step: str) -> None:
    (folder / "1").mkdir(parents=True)
    maps = 'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" }'
    scheduling = f'ensemble_scheduling {{ step [ {{ model_name: "{step}" model_version: -1 {maps} }} ] }}'
    (folder / "config.pbtxt").write_text('platform: "ensemble"' + TENSORS + scheduling)


def asked(server: Server, request: Request) -> tuple[int, Any]:
    (answer,) = converse(server.http, (request,))
    return answer.status, json.loads(answer.body) if answer.body else ""


def infer(server: Server, model: str) -> float | str:
    status, body = asked(server, post(model, {"inputs": [tensor("A", "FP32", [1], [0.0])]}))
    return float(body["outputs"][0]["data"][0]) if status == 200 else str(body["error"])


def facts(server: Server, model: str) -> Facts:
    """Of three moments, one behind the other."""
    _, index = asked(server, Request("POST", "/v2/repository/index"))
    states = {each.get("version", ""): each.get("state", "") for each in index if each["name"] == model}
    return Facts(infer(server, model), states, asked(server, Request("GET", "/v2/health/ready"))[0] == 200)


def settled(server: Server, model: str, wanted: Callable[[Facts], bool]) -> Facts:
    """What is seen as soon as it is as wanted; what is seen in the end when it never is."""
    deadline = time.monotonic() + SECONDS_MAX
    while not wanted(found := facts(server, model)) and time.monotonic() < deadline:
        time.sleep(0.1)  # what a poll has done gives no event
    return found


def becomes(server: Server, model: str, wanted: Facts) -> None:
    """In the end all are as wanted: one of them alone may be so before the others are."""
    assert settled(server, model, lambda found: found == wanted) == wanted


def adds(number: float) -> Callable[[Facts], bool]:
    return lambda found: found.adds == number
