"""From the bytes of a picture (binary PPM) to normalised planes: what stands before an image classifier."""

import numpy as np
import triton_python_backend_utils as pb_utils

MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(pb_utils.get_input_tensor_by_name(r, "IMAGE").as_numpy()) for r in requests]

    def _answer(self, pictures):
        try:
            planes = np.stack([self._planes(raw) for raw in pictures[:, 0]])
        except ValueError as error:
            text = f"not a picture: {error}"
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("PIXELS", planes)])

    def _planes(self, raw):
        kind, width, height, depth, points = raw.split(maxsplit=4)
        if kind != b"P6" or depth != b"255":
            raise ValueError(f"{kind!r} of depth {depth!r}")
        image = np.frombuffer(points, np.uint8).reshape(int(height), int(width), 3)
        return (image.transpose(2, 0, 1).astype(np.float32) / 255 - MEAN) / DEVIATION
