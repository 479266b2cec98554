"""Makes planes of floats of the bytes of a picture of 2 by 2 pixels, in the type that its configuration says."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(config, "PLANES")
        self.type = pb_utils.triton_string_to_numpy(output["data_type"])

    def execute(self, requests):
        responses = []
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            pictures = [np.frombuffer(image.tobytes(), np.uint8).reshape(2, 2, 3) for image in images]
            planes = np.stack([picture.transpose(2, 0, 1) / 255 for picture in pictures])
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("PLANES", planes.astype(self.type))]))
        return responses
