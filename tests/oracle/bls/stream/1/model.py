import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """N responses; of -N, the last of N is an error; 100: waits until it is cancelled."""

    def execute(self, requests):
        for request in requests:
            number = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
            sender = request.get_response_sender()
            for index in range(abs(number) if number != 100 else 1):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([index], np.int32))]))
            while number == 100 and not sender.is_cancelled():
                pass
            if number < 0 or number == 100:
                code = pb_utils.TritonError.CANCELLED if number == 100 else pb_utils.TritonError.INTERNAL
                sender.send(pb_utils.InferenceResponse([], error=pb_utils.TritonError("trouble", code)), FINAL)
            else:
                sender.send(flags=FINAL)
