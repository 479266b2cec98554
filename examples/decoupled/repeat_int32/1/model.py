"""One response for each number of IN, DELAY ms after the one before; execute sleeps WAIT ms for each request."""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Each request is answered by a thread of its own, so `execute` returns and the next batch can begin."""

    def initialize(self, args):
        """Remember the threads, so that finalize can wait for them."""
        self._threads = set()

    def execute(self, requests):
        """Start a thread for each request.  A decoupled model returns None: its answers go through senders."""
        for request in requests:
            values, delays, wait = (_array(request, name) for name in ("IN", "DELAY", "WAIT"))
            # Copies: the request, and with it the memory that its inputs lie in, can go.
            arguments = (request.get_response_sender(), values.copy(), delays.copy())
            thread = threading.Thread(target=self._answer, args=arguments, daemon=True)
            self._threads.add(thread)
            thread.start()
            time.sleep(wait[0] / 1000)

    def finalize(self):
        """The server calls this when no stream is open."""
        for thread in list(self._threads):
            thread.join()

    def _answer(self, sender, values, delays):
        for index, value in enumerate(values):
            time.sleep(delays[index] / 1000)
            if sender.is_cancelled():
                break  # nobody reads it
            sender.send(_response(value, index))
        sender.send(flags=FINAL)
        self._threads.discard(threading.current_thread())


def _array(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def _response(value, index):
    out = pb_utils.Tensor("OUT", np.array([value], np.int32))
    return pb_utils.InferenceResponse([out, pb_utils.Tensor("IDX", np.array([index], np.uint32))])
