"""Answers with each element of IN, DELAY milliseconds after the one before; `execute` takes WAIT milliseconds."""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            values, delays, wait = (
                pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("IN", "DELAY", "WAIT")
            )
            sender = request.get_response_sender()
            threading.Thread(target=self.answer, args=(sender, values, delays), daemon=True).start()
            time.sleep(wait[0] / 1000)

    def answer(self, sender, values, delays):
        for at, (value, delay) in enumerate(zip(values, delays, strict=True)):
            time.sleep(delay / 1000)
            out = pb_utils.Tensor("OUT", np.array([value], np.int32))
            index = pb_utils.Tensor("IDX", np.array([at], np.uint32))
            sender.send(pb_utils.InferenceResponse([out, index]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
