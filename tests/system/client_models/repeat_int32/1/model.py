"""One answer for each number, from a thread, while the next request may already be executed."""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self._threads = []

    def execute(self, requests):
        for request in requests:
            numbers, delays, (wait,) = (
                pb_utils.get_input_tensor_by_name(request, name).as_numpy().copy() for name in ("IN", "DELAY", "WAIT")
            )
            thread = threading.Thread(target=self._answer, args=(request.get_response_sender(), numbers, delays))
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()
            time.sleep(wait / 1000)

    def _answer(self, sender, numbers, delays):
        for index, (number, delay) in enumerate(zip(numbers, delays, strict=True)):
            time.sleep(delay / 1000)
            tensors = [
                pb_utils.Tensor("OUT", np.array([number], np.int32)),
                pb_utils.Tensor("IDX", np.array([index], np.uint32)),
            ]
            sender.send(pb_utils.InferenceResponse(tensors))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        for thread in self._threads:
            thread.join()
