"""The models that the client's tests ask."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.system.helpers import ADD_ONE, CONFIG, ROOT

TYPES = (
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "STRING",
)
IDENTITY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([
            pb_utils.Tensor(t.name().replace("IN_", "OUT_"), t.as_numpy()) for t in r.inputs()]) for r in requests]
"""
FACTS = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            facts = {"id": request.request_id(), "parameters": json.loads(request.parameters()),
                     "correlation": request.correlation_id(), "flags": request.flags(), "timeout": request.timeout(),
                     "inputs": [t.name() for t in request.inputs()]}
            text = np.array([json.dumps(facts)], np.object_)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("FACTS", text)]))
        return answers
"""
FAILING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("no luck")) for _ in requests]
"""
COUNTING = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums, self.starts, self.ends = {}, 0, 0

    def execute(self, requests):
        answers = []
        for request in requests:
            inputs = (pb_utils.get_input_tensor_by_name(request, name) for name in ("START", "END", "X"))
            start, end, value = (each.as_numpy() for each in inputs)
            key = request.correlation_id()
            self.starts += int(start.sum())
            self.ends += int(end.sum())
            self.sums[key] = value + (0 if start.any() else self.sums[key])
            counts = np.array([[self.starts, self.ends]], np.int32)
            answers.append(pb_utils.InferenceResponse(
                [pb_utils.Tensor("SUM", self.sums[key]), pb_utils.Tensor("COUNTS", counts)]))
        return answers
"""
COUNTING_CONFIG = """
backend: "python"
max_batch_size: 1
sequence_batching {
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] }
  ]
}
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "SUM" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "COUNTS" data_type: TYPE_INT32 dims: [ 2 ] } ]
"""


def _write(repository: Path, name: str, code: str, config: str) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(code)
    (folder.parent / "config.pbtxt").write_text(config)


def write_models(repository: Path) -> None:
    """All of them."""
    for name in ("add_sub", "identity_fp32"):
        shutil.copytree(ROOT / "examples/models" / name, repository / name)
    shutil.copytree(ROOT / "examples/decoupled/repeat_int32", repository / "repeat_int32")
    shutil.copytree(ROOT / "tests/oracle/models/labelled", repository / "labelled")
    types = ", ".join(f'{{ name: "IN_{t}" data_type: TYPE_{t} dims: [ -1 ] optional: true }}' for t in TYPES)
    outputs = ", ".join(f'{{ name: "OUT_{t}" data_type: TYPE_{t} dims: [ -1 ] }}' for t in TYPES)
    _write(repository, "types", IDENTITY, f'backend: "python"\ninput [ {types} ]\noutput [ {outputs} ]\n')
    _write(repository, "add_one", ADD_ONE, CONFIG)
    batched = CONFIG.replace("\ninput", "\nmax_batch_size: 4\ninput")
    _write(repository, "batched", ADD_ONE, batched)
    facts = 'output [ { name: "FACTS" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
    more = '{ name: "priority" data_type: TYPE_FP32 dims: [ -1 ] optional: true }'
    inputs = f'input [ {{ name: "A" data_type: TYPE_FP32 dims: [ -1 ] }}, {more} ]\n'
    _write(repository, "facts", FACTS, f'backend: "python"\n{inputs}{facts}')
    _write(repository, "failing", FAILING, CONFIG)
    _write(repository, "counting", COUNTING, COUNTING_CONFIG)
