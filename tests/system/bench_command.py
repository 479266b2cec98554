"""`tisfast bench` as a process, and models that its tests share."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.system.helpers import ROOT

SECONDS_MAX = 90
STREAM = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A")
            sender = request.get_response_sender()
            for _ in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", a.as_numpy())]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
"""
DECOUPLED = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "A" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
COUNTER = """
import json, os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.log = open(os.path.join(args["model_repository"], "seen"), "a")

    def execute(self, requests):
        answers = []
        for request in requests:
            told = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("ID", "START", "END")]
            told = [int(each.flat[0]) for each in told]
            a = pb_utils.get_input_tensor_by_name(request, "A")
            self.log.write(json.dumps([*told, float(a.as_numpy().flat[0])]) + "\\n")
            self.log.flush()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", a.as_numpy())]))
        return answers
"""
# A busy machine may let a server stand still: a sequence that is idle for the usual 1 s would be over.
SEQUENCES = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
sequence_batching {
  max_sequence_idle_microseconds: 90000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
    { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
}
"""


def started(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tisfast", "bench", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def bench(*arguments: object) -> tuple[int, str, str]:
    """Its exit code, and what it printed, which a test that fails shows, too; it always ends."""
    process = started(*arguments)
    try:
        out, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    print(out, err, sep="\n")
    return process.returncode, out, err


def figure(text: str, name: str) -> float:
    found = re.search(rf"{name}: ([\d.e+]+)", text)
    assert found, text
    return float(found[1])
