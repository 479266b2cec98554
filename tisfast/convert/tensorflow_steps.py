"""Steps of TensorFlow, in a process of their own: SavedModels, in ONNX and for OpenVINO, too.  Layer 5 (convert)."""

from __future__ import annotations

import importlib
import runpy
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tisfast.client.arrays import datatype_of
from tisfast.convert.openvino_steps import openvino, write
from tisfast.convert.references import Array, answer, given_samples
from tisfast.convert.signature import Signature, Tensor
from tisfast.errors import BadRequest

DEFAULT: Final = "serving_default"
"""The signature that the tensorflow backend serves where a configuration names none."""
OPSET: Final = "18"


def reference(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Answers of the SavedModel's default signature."""
    tensorflow = importlib.import_module("tensorflow")
    model = tensorflow.saved_model.load(request["source"])
    function = model.signatures.get(DEFAULT)
    if function is None:
        known = ", ".join(model.signatures) or "none"
        raise BadRequest(f"{request['text']} has no signature '{DEFAULT}', which would be served; it has {known}")
    specs = function.structured_input_signature[1]
    inputs = tuple(_tensor(each, spec) for each, spec in sorted(specs.items()))
    outputs = tuple(_tensor(each, spec) for each, spec in sorted(function.structured_outputs.items()))
    batches = not request["no_batch"] and all(each.dims and each.dims[0] == -1 for each in (*inputs, *outputs))

    def run(feeds: dict[str, Array]) -> dict[str, Array]:
        given = {name: tensorflow.constant(array, specs[name].dtype) for name, array in feeds.items()}
        return {name: np.asarray(each.numpy()) for name, each in function(**given).items()}

    return answer(request, folder, Signature(inputs, outputs, batches), given_samples(request), run)


def _tensor(name: str, spec: Any) -> Tensor:
    if spec.shape.rank is None:
        raise BadRequest(f"'{name}' of the SavedModel has any number of dimensions, and a tensor has one number")
    kind = "BYTES" if spec.dtype.name == "string" else datatype_of(np.empty(0, spec.dtype.as_numpy_dtype))
    return Tensor(name, kind, tuple(-1 if each is None else each for each in spec.shape))


def copy(request: Mapping[str, Any], _: Path) -> None:
    """The folder as it is."""
    shutil.copytree(request["source"], request["target"])


def to_openvino(request: Mapping[str, Any], _: Path) -> None:
    """An IR, by OpenVINO's own reader of SavedModels."""
    ov = openvino()
    write(ov, ov.convert_model(request["source"]), request)


def onnx(request: Mapping[str, Any], _: Path) -> None:
    """A graph by tf2onnx."""
    target = request["target"]
    sys.argv = ["tf2onnx.convert", "--saved-model", request["source"], "--output", target, "--opset", OPSET]
    runpy.run_module("tf2onnx.convert", run_name="__main__")  # its documented way to read SavedModels
    if not Path(target).is_file():
        raise RuntimeError("tf2onnx has written no graph")
