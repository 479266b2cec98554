"""Answers N with N responses of N, from a thread for each request."""

import json
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        if not pb_utils.using_decoupled_model_transaction_policy(config):
            raise pb_utils.TritonModelException("squares is a decoupled model")
        self.running = 0
        self.lock = threading.Lock()

    def execute(self, requests):
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0]
            thread = threading.Thread(target=self.answer, args=(request.get_response_sender(), number))
            thread.daemon = True
            with self.lock:
                self.running += 1
            thread.start()

    def answer(self, sender, number):
        for _ in range(number):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        with self.lock:
            self.running -= 1
