"""A decoupled model that does what its requests say, without fronts."""

import struct

import pytest

from tests.waiting import until
from tisfast.engine.testing import StreamSink, place_input, submit

CONFIG = """
backend: "python"
input [ { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
model_transaction_policy { decoupled: true }
"""
MODEL = """
import os, threading, time
import numpy as np
import triton_python_backend_utils as pb
FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL
def answer(*values):
    return pb.InferenceResponse([pb.Tensor("OUT", np.array(values, np.int32))])
def failed(text):
    return pb.InferenceResponse([], error=pb.TritonError(text))
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            code = pb.get_input_tensor_by_name(r, "CODE").as_numpy().reshape(-1)[0].decode()
            names = dict(globals(), r=r, s=r.get_response_sender(), state=self)
            r = None
            exec(code, names)
            if "returned" in names:
                return names["returned"]
"""


@pytest.fixture
def streams(write, supervise, run):
    """A decoupled model; `ask(code)` sends one request, `calls` has what came back."""

    class Streams:
        def __init__(self, code=MODEL, config=CONFIG, workers=None):
            write("m", code, config)
            self.supervisor = supervise(workers=workers)
            assert self.supervisor.served, supervise
            self.runtime = self.supervisor.served[0].runtime
            self.instance = self.supervisor.served[0].instances[0]
            self.calls = []

        def ask(self, code, id="r"):
            data = struct.pack("<I", len(code.encode())) + code.encode()
            return submit(self.runtime, place_input(self.runtime, id, [(0, 13, (1,), data)]), StreamSink(self.calls))

        def finals(self):
            return sum(call[3] for call in self.calls)

        def until_final(self, count=1):
            run(until(lambda: self.finals() >= count))
            return self.told()

        def told(self):
            return [self._short(call) for call in self.calls]

        @staticmethod
        def _short(call):
            _, status, what, final = call
            if isinstance(what, list):
                what = [list(struct.unpack(f"<{len(data) // 4}i", data)) for *_, data in what]
            return (status, what, final)

    return Streams
