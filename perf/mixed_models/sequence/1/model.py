"""OUT = MS, after so many milliseconds."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """A batch takes as long as its requests one after the other."""

    def execute(self, requests):
        """One answer for each request, in order."""
        lengths = [pb_utils.get_input_tensor_by_name(request, "MS").as_numpy() for request in requests]
        time.sleep(sum(int(np.sum(each)) for each in lengths) / 1e3)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each)]) for each in lengths]
