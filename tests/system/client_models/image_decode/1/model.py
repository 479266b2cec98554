"""A file of any format that pillow reads, as 16 by 16 points between 0 and 1."""

import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        files = pb_utils.get_input_tensor_by_name(request, "FILE").as_numpy()
        images = [Image.open(io.BytesIO(file)).convert("RGB").resize((16, 16)) for (file,) in files]
        points = np.stack([np.asarray(image, np.float32) for image in images]) / 255
        return pb_utils.InferenceResponse([pb_utils.Tensor("IMAGE", np.moveaxis(points, -1, 1))])
