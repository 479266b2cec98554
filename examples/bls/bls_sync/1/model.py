"""Asks another model, one call after the other."""

import triton_python_backend_utils as pb_utils


def call(output, first, second):
    """One output of bls_add_sub.  Raises TritonModelException when it answers with an error."""
    response = pb_utils.InferenceRequest(
        model_name="bls_add_sub",
        requested_output_names=[output],
        inputs=[pb_utils.Tensor("INPUT0", first), pb_utils.Tensor("INPUT1", second)],
    ).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, output).as_numpy()


class TritonPythonModel:
    """There and back again, twice."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        first, second = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        there = call("OUTPUT1", call("OUTPUT0", first, second), second)
        back = call("OUTPUT0", call("OUTPUT1", first, second), second)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", there), pb_utils.Tensor("OUTPUT1", back)])
