"""Models whose texts codec processes read, and the processes."""

from __future__ import annotations

import contextlib

import psutil

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
            for r in requests
        ]
"""


STREAM = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            for i in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", a + i)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def codecs(server):
    """The codec processes that run now."""
    found = []
    for process in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends while we look
            if "tisfast.codec" in " ".join(process.cmdline()):
                found.append(process)
    return found
