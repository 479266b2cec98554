"""Any number of responses to a request."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Counts down, until nobody listens."""

    def execute(self, requests):
        """All responses of each request, then its final flag."""
        for request in requests:
            sender = request.get_response_sender()
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            for left in range(count, 0, -1):
                if sender.is_cancelled():
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("LEFT", np.array([left], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
