"""Asks the model whose name the client sends: an element of a string tensor, which is bytes."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("LEFT", "RIGHT")]
            asked = pb_utils.InferenceRequest(
                model_name=pb_utils.get_input_tensor_by_name(request, "WHOM").as_numpy()[0],
                requested_output_names=["SUM", "DIFFERENCE"],
                inputs=inputs,
            )
            answer = asked.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            responses.append(pb_utils.InferenceResponse(output_tensors=answer.output_tensors()))
        return responses
