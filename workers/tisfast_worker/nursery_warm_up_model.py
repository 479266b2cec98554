"""The model of nursery_warm_up.py: what small models do."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Adds one."""

    def initialize(self, args):
        """Look at the arguments as models do."""
        self.name = args["model_name"]

    def execute(self, requests):
        """The answers."""
        answers = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", values + 1)]))
        return answers
