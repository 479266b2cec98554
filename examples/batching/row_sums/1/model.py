"""Sums rows, a whole batch at a time: `execute_batch` here, and `execute` for servers that know only that."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Two ways to the same result."""

    def execute_batch(self, inputs):
        """Arrays [N, ...] by input name; the answer has N rows, too.  No loop, and usually no copy."""
        return {"SUM": inputs["ROW"].sum(axis=1, keepdims=True)}

    def execute(self, requests):
        """One request at a time, as Triton's Python models do it."""
        responses = []
        for request in requests:
            row = pb_utils.get_input_tensor_by_name(request, "ROW").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", row.sum(axis=1, keepdims=True))]))
        return responses
