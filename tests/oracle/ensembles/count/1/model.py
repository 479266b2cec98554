"""As many responses as N says, with their numbers; N below 0: as many, and then an error."""

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """The last response is not marked: the end comes by itself."""

    def execute(self, requests):
        """Answers each request before it returns."""
        for request in requests:
            (wanted,) = pb_utils.get_input_tensor_by_name(request, "N").as_numpy()
            sender = request.get_response_sender()
            for number in range(abs(wanted)):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
            if wanted < 0:
                error = pb_utils.TritonError("stream trouble")
                sender.send(pb_utils.InferenceResponse([], error), flags=FINAL)
            else:
                sender.send(flags=FINAL)
