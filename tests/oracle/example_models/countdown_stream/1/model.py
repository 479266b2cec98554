"""Counts down from N, one response in each round, and goes back into the queue in between."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.left = {}

    def execute(self, requests):
        for request in requests:
            key = request.correlation_id()
            if key == 0:
                continue  # fills an empty slot
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.left[key] = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0, 0])
            sender = request.get_response_sender()
            left = np.array([[self.left[key]]], np.int32)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("LEFT", left)]))
            if self.left[key] > 0:
                self.left[key] -= 1
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            else:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
