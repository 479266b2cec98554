"""One response for each word of TEXT."""

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """A text without words has no response at all."""

    def execute(self, requests):
        """Answers each request before it returns."""
        for request in requests:
            (text,) = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            sender = request.get_response_sender()
            for word in text.split():
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("WORD", np.array([word], np.object_))]))
            sender.send(flags=FINAL)
