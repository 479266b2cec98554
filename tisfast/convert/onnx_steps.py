"""Steps of ONNX, in a process of their own: the source's answers, and its graph in FP16.  Layer 5 (convert)."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tisfast.convert.onnx_fp16 import write_fp16
from tisfast.convert.onnx_weights import files_beside
from tisfast.convert.references import Array, answer, given_samples
from tisfast.convert.samples import texts
from tisfast.convert.signature import Signature, Tensor
from tisfast.errors import BadRequest

DATATYPES: Final = {
    "float": "FP32", "double": "FP64", "float16": "FP16", "bfloat16": "BF16", "bool": "BOOL", "string": "BYTES",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
}  # fmt: skip
"""By ONNX Runtime's names."""
GRAPH: Final = "model.onnx"


def graph_of(source: str) -> Path:
    """The file of the graph: a folder has it in it."""
    path = Path(source)
    return path / GRAPH if path.is_dir() else path


def reference(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Answers of ONNX Runtime on the CPU."""
    runtime = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(str(graph_of(request["source"])), providers=["CPUExecutionProvider"])
    signature = signature_of(session)
    names = [each.name for each in signature.outputs]

    samples = given_samples(request)
    for sample in samples:
        _check_ranks(signature.inputs, sample, "input")
    if request["no_batch"] or _are_several_sizes(session, samples):
        signature = replace(signature, batches=False)

    def run(feeds: dict[str, Array]) -> dict[str, Array]:
        found = dict(zip(names, session.run(names, {name: texts(each) for name, each in feeds.items()}), strict=True))
        _check_ranks(signature.outputs, found, "output")
        return found

    return answer(request, folder, signature, samples, run)


def _check_ranks(tensors: Sequence[Tensor], arrays: Mapping[str, Array], role: str) -> None:
    """Raises BadRequest for a tensor whose number of dimensions the graph does not tell: it looks like a scalar."""
    for each in tensors:
        if not each.dims and each.name in arrays and np.ndim(arrays[each.name]):
            raise BadRequest(
                f"the graph does not tell how many dimensions {role} '{each.name}' has, so that servers take it for a "
                f"scalar, and here it is shaped {list(np.shape(arrays[each.name]))}: export it with the shapes of its "
                "inputs and outputs (sizes may be open)"
            )


def _are_several_sizes(session: Any, samples: Sequence[Mapping[str, Array]]) -> bool:
    """Whether first sizes that the graph calls by several names are no batch: samples have several there, too.

    Names alone do not tell: exporters make up one for each input.
    """
    if len({each.shape[0] for each in session.get_inputs() if each.shape and isinstance(each.shape[0], str)}) < 2:
        return False
    return any(len({np.shape(array)[:1] for array in each.values()}) > 1 for each in samples)


def signature_of(session: Any) -> Signature:
    """Raises BadRequest for values that are no tensors."""
    inputs = tuple(_tensor(each, "input") for each in session.get_inputs())
    outputs = tuple(_tensor(each, "output") for each in session.get_outputs())
    batches = all(each.dims and each.dims[0] == -1 for each in (*inputs, *outputs))
    return Signature(inputs, outputs, batches)


def _tensor(value: Any, role: str) -> Tensor:
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    if kind not in DATATYPES:
        raise BadRequest(
            f"{role} '{value.name}' of the model is {value.type}, which no backend serves; of scikit-learn, export "
            'without ZipMap: options={"zipmap": False}'
        )
    return Tensor(value.name, DATATYPES[kind], tuple(dim if isinstance(dim, int) else -1 for dim in value.shape))


def copy(request: Mapping[str, Any], _: Path) -> None:
    """The file as it is, and the weights that lie beside it."""
    target = Path(request["target"])
    source = Path(request["source"])
    if source.is_dir():
        shutil.copytree(source, target)
        return
    shutil.copyfile(source, target)
    for each in files_beside(source):
        place = target.parent / each
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.parent / each, place)


def fp16(request: Mapping[str, Any], _: Path) -> dict[str, str]:
    """The graph with FP16 weights and arithmetic; inputs and outputs stay as they are."""
    return write_fp16(graph_of(request["source"]), Path(request["target"]), request)
