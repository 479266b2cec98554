"""A Python-based backend as an operator has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tritonclient.grpc as grpcclient

HERE = Path(__file__).parent / "python_based"


def given(text, stream=None, sampling=""):
    tensors = [("text_input", "BYTES", [text.encode()], np.object_)]
    if stream is not None:
        tensors.append(("stream", "BOOL", [stream], np.bool_))
    if sampling:
        tensors.append(("sampling_parameters", "BYTES", [sampling.encode()], np.object_))
    inputs = []
    for name, datatype, values, dtype in tensors:
        inputs.append(grpcclient.InferInput(name, [1], datatype))
        inputs[-1].set_data_from_numpy(np.array(values, dtype))
    return inputs
