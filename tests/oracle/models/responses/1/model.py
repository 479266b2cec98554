import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            plan = pb_utils.get_input_tensor_by_name(request, "PLAN").as_numpy()[0].decode()
            self.respond(request.get_response_sender(), plan)

    def respond(self, sender, plan):
        last = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        for letter in plan:
            if letter == "F":
                return sender.send(self.response(letter), flags=last)
            sender.send(self.response(letter))
        return sender.send(flags=last)

    def response(self, letter):
        if letter == "e":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("bad luck"))
        if letter == "n":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("nothing", pb_utils.TritonError.NOT_FOUND))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([letter.encode()], dtype=object))])
