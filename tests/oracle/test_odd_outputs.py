"""Outputs that are not what the configuration says: both servers send, keep, pass on and refuse them alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from perf.oracle.server import Server
from tests.oracle.cases.table import post, tensor
from tests.oracle.exchange import converse

MODEL: Final = """
import numpy as np
import triton_python_backend_utils as pb_utils

def outputs(mode, lead):
    tensor, good = pb_utils.Tensor, np.arange(1, 3, dtype=np.float32).reshape(*lead, 2)
    text = tensor("B", np.full((*lead, 1), b"t", object))
    types = {"INT64": "i8", "FP64": "f8", "INT8": "i1", "BOOL": "?"}
    shapes = {"no dimension": (), "more dimensions": (*lead, 1, 1, 2), "more elements": (*lead, 3), "none": (*lead, 0),
              "other rows": (2, 2), "no batch": (2,)}
    if mode in types:
        return [tensor("A", good.astype(types[mode])), text]
    if mode in shapes:
        return [tensor("A", np.zeros(shapes[mode], np.float32)), text]
    return {"good": [tensor("A", good), text], "BYTES": [tensor("A", np.full(good.shape, b"xy", object)), text],
            "one more": [tensor("A", good), text, tensor("Z", good)], "one": [text], "nothing": [],
            "twice": [tensor("A", good), text, tensor("A", good + 5)]}[mode]

class TritonPythonModel:
    def execute(self, requests):
        modes = [pb_utils.get_input_tensor_by_name(request, "MODE").as_numpy() for request in requests]
        made = [outputs(mode.ravel()[0].decode(), mode.shape[:1] if BATCHED else ()) for mode in modes]
        return [pb_utils.InferenceResponse(each) for each in made]
"""
TAKER: Final = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        seen = [np.full((len(x), 1), f"{x.dtype}{x.tolist()}", object) for x in found]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SAW", each)]) for each in seen]
"""
ASKER: Final = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        mode = pb_utils.get_input_tensor_by_name(requests[0], "MODE").as_numpy().reshape(1, 1)
        answer = pb_utils.InferenceRequest(
            model_name="batched", requested_output_names=["A", "B"], inputs=[pb_utils.Tensor("MODE", mode)]
        ).exec()
        said = [[t.name(), str(t.as_numpy().dtype), t.as_numpy().astype(str).tolist()] for t in answer.output_tensors()]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SAW", np.array([[json.dumps(said)]], object))])]
"""
IN: Final = 'input [ { name: "MODE" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
OUT: Final = '[ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "B" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
SAW: Final = 'output [ { name: "SAW" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
PYTHON: Final = 'backend: "python"\ninstance_group [ { kind: KIND_CPU } ]\n'
BATCHED: Final = "max_batch_size: 8\n"
STEP: Final = (
    'ensemble_scheduling {{ step [ {{ model_name: "batched" model_version: -1 '
    'input_map {{ key: "MODE" value: "MODE" }} output_map {{ key: "A" value: "{}" }} }}{} ] }}\n'
)
NEXT: Final = (
    ', { model_name: "taker" model_version: -1 '
    'input_map { key: "X" value: "x" } output_map { key: "SAW" value: "SAW" } }'
)
MODELS: Final = {
    "plain": (PYTHON + IN + "output " + OUT, MODEL.replace("BATCHED", "False")),
    "batched": (PYTHON + BATCHED + IN + "output " + OUT, MODEL.replace("BATCHED", "True")),
    "cached": (PYTHON + IN + "output " + OUT + "response_cache { enable: true }\n", MODEL.replace("BATCHED", "False")),
    "taker": (
        f'{PYTHON}{BATCHED}input [ {{ name: "X" data_type: TYPE_FP32 dims: [ 2 ] }} ]\n{SAW}', TAKER,
    ),
    "asker": (PYTHON + BATCHED + IN + SAW, ASKER),
    "last": (
        f'platform: "ensemble"\n{BATCHED}{IN}output [ {{ name: "A" data_type: TYPE_FP32 dims: [ 2 ] }} ]\n'
        + STEP.format("A", ""), None,
    ),
    "between": (f'platform: "ensemble"\n{BATCHED}{IN}{SAW}' + STEP.format("x", NEXT), None),
}  # fmt: skip
MODES: Final = [
    *("good", "INT64", "FP64", "INT8", "BOOL", "BYTES", "no dimension", "more dimensions", "more elements", "none"),
    *("other rows", "no batch", "one more", "one", "nothing", "twice"),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder: Path = tmp_path_factory.mktemp("odd")
    for name, (config, code) in MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        if code is not None:
            (folder / name / "1/model.py").write_text(code)
    flags = ["--cache-config=local,size=1048576"]
    with Server("triton", [folder], flags) as theirs, Server("tisfast", [folder], flags) as ours:
        yield theirs, ours


def said(server: Server, model: str, mode: str, binary: bool) -> Any:
    """Status and outputs, or the error: 2.51 names no type in some, and ours may go on where it ends."""
    shape = [1] if model in ("plain", "cached") else [1, 1]
    parameters = {"binary_data_output": binary}
    request = post(model, {"inputs": [tensor("MODE", "BYTES", shape, [mode])], "parameters": parameters})
    (answer,) = converse(server.http, [request])
    assert answer.status, "the server ended"
    size = answer.headers.get("inference-header-content-length")
    head = json.loads(answer.body[: int(size)] if size else answer.body)
    if "error" in head:
        return answer.status, re.sub(r"\. NOTE: .*|\. $| ?Got input.*", "", head["error"], flags=re.DOTALL)
    return answer.status, head["outputs"], answer.body[int(size) :] if size else b""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", ["plain", "batched", "cached", "last", "between", "asker"])
def test_both_do_the_same(both: tuple[Server, Server], model: str, mode: str) -> None:
    for binary in (False, True, False):  # the cache has it the second time
        theirs, ours = (said(server, model, mode, binary) for server in both)
        assert ours[0] == theirs[0]
        if theirs[0] == 200:
            assert ours == theirs
        else:
            assert ours[1].startswith(theirs[1]), (theirs, ours)
