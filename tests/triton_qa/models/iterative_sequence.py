"""Stands in for Triton's `iterative_sequence` backend: counts down from its input, an answer for each step."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils

RELEASE_SECONDS = 0.5  # a test has sequences end before this


class TritonPythonModel:
    """Asks to be executed again until it has counted to 0."""

    def initialize(self, args):
        self.left = 0

    def execute(self, requests):
        for request in requests:
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START or self.left <= 0:
                self.left = int(pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy().ravel()[0])
            self.left -= 1
            sender = request.get_response_sender()
            answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[self.left]], np.int32))])
            if self.left > 0:
                sender.send(answer)
                time.sleep(RELEASE_SECONDS)
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            else:
                sender.send(answer, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
