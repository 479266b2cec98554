"""A graph of ONNX in FP16, and whether its numbers stay within what FP16 holds.  Layer 5 (convert).

ONNX Runtime computes most of FP16 in FP32 on a CPU, so that a product of 90000 inside of a graph harms nothing there,
and is infinite on a GPU.  So the graph is also run with each such number put to what FP16 makes of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tisfast import limits
from tisfast.convert.compare import Difference, allowed
from tisfast.convert.onnx_graphs import subgraphs, with_unique_names
from tisfast.convert.references import FEEDS, Array
from tisfast.convert.samples import Case, load_cases
from tisfast.convert.scales import scales_of
from tisfast.convert.signature import Signature
from tisfast.errors import BadRequest

ONE_FILE_BYTES_MAX: Final = (2 << 30) - 1
"""Of a protobuf message: weights of larger models lie beside the graph."""
LARGEST: Final = 65504.0
LEAST: Final = 2.0**-25
"""Half of the smallest number of FP16: what is below becomes 0."""
TO_INFINITY: Final = 3.0e38
"""Makes FP32's infinity of what is above LARGEST."""
OPSET_MIN: Final = 9
FLOAT: Final = 1
FLOAT16: Final = 10
"""Types of ONNX, by its numbers."""
WRONG: Final = "wrong"
OWN: Final = "tisfast_fp16_"
"""Begins the names of values that are added."""


def write_fp16(source: Path, target: Path, request: Mapping[str, Any] | None = None) -> dict[str, str]:
    """By ONNX Runtime's own transformation.  Gives WRONG and why, where FP16 does not hold its numbers.

    request: of the step, with the samples that tell what its numbers are; None: that is not looked at.  Raises
    BadRequest where nothing would change.
    """
    onnx = importlib.import_module("onnx")
    float16 = importlib.import_module("onnxruntime.transformers.float16")
    model = onnx.load(str(source))
    with_unique_names(model.graph)  # the transformation knows one initializer of a name
    large = model.ByteSize() > ONE_FILE_BYTES_MAX
    whole = None
    if request is not None and not large and not request["judged"]:
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
    made = float16.convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=large)
    if not _has_fp16(made.graph):
        raise BadRequest("nothing of the graph is FP32, so that FP16 of it is the same graph: take fp32")
    wrong = "" if request is None or whole is None else _out_of_range(onnx, whole, made, request)
    # Its casts stand behind what they feed, which ONNX Runtime takes and ONNX does not allow.
    importlib.import_module("onnxruntime.transformers.onnx_model").OnnxModel(made).topological_sort()
    onnx.save(made, str(target), save_as_external_data=made.ByteSize() > ONE_FILE_BYTES_MAX, location="weights.bin")
    return {WRONG: wrong} if wrong else {}


def _samples(request: Mapping[str, Any]) -> list[Case]:
    """One row each, where the model batches."""
    signature = Signature.read(request["signature"])
    cases = load_cases(Path(request["reference"]) / FEEDS, signature.inputs, request["cases"])
    if signature.batches:
        cases = [each for each in cases if all(len(array) == 1 for array in each.feeds.values())]
    return cases[: limits.CONVERT_RANGE_CASES_MAX]


def _has_fp16(graph: Any) -> bool:
    """It, or a subgraph."""
    if any(each.data_type == FLOAT16 for each in graph.initializer):
        return True
    casts = (each for node in graph.node if node.op_type == "Cast" for each in node.attribute if each.name == "to")
    return any(each.i == FLOAT16 for each in casts) or any(map(_has_fp16, subgraphs(graph.node)))


def _out_of_range(onnx: Any, model: Any, made: Any, request: Mapping[str, Any]) -> str:
    """How the outputs are others with numbers as FP16 holds them; "" where they are not.  model: is changed.

    Graphs before opset 9 do not have the operators for it, and those whose inputs are called otherwise are not asked.
    """
    if max((each.version for each in model.opset_import if not each.domain), default=0) < OPSET_MIN:
        return ""
    cases = _samples(request)
    plain = _session(model)
    names = [each.name for each in plain.get_inputs()]
    if not cases or set(names) != set(cases[0].feeds):
        return ""
    _hold_in_fp16(onnx, model, made)
    half = _session(model)
    outputs = [each.name for each in plain.get_outputs()]
    answers = [(case.name, *(each.run(outputs, case.feeds) for each in (plain, half))) for case in cases]
    for place, output in enumerate(outputs):
        wanted = [np.asarray(first[place]) for _, first, _ in answers]
        if wanted[0].dtype.kind != "f" or any(each.ndim != wanted[0].ndim for each in wanted):
            continue
        own = allowed("fp16", wanted[0], scales_of(wanted, _dims(wanted)), request["atol"], request["rtol"])
        for (name, _, second), first in zip(answers, wanted, strict=True):
            seen = Difference()
            seen.add(output, name, first, np.asarray(second[place]), own)
            if seen.wrong:
                return (
                    f"numbers inside of it are beyond FP16, which holds {LARGEST:g} at most: {seen.wrong}. A CPU does "
                    "not show that, as it computes in FP32; a GPU does"
                )
    return ""


def _session(model: Any) -> Any:
    runtime = importlib.import_module("onnxruntime")
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _dims(arrays: Sequence[Array]) -> list[int]:
    sizes = zip(*(each.shape for each in arrays), strict=True)
    return [every[0] if len(set(every)) == 1 else -1 for every in sizes]


def _in_fp16(onnx: Any, made: Any) -> set[str]:
    """Values that are FP16 in the graph that was made, or are cast to or from it."""
    inferred = onnx.shape_inference.infer_shapes(made).graph
    types = {each.name: each.type.tensor_type.elem_type for each in (*inferred.value_info, *inferred.output)}
    found = {name for name, kind in types.items() if kind == FLOAT16}
    for node in made.graph.node:
        if node.op_type == "Cast":
            (to,) = (each.i for each in node.attribute if each.name == "to")
            if to == FLOAT16:
                found.add(node.input[0])
            elif to == FLOAT and node.input[0] in found:
                found.add(node.output[0])
    return found


def _hold_in_fp16(onnx: Any, model: Any, made: Any) -> None:
    """What is FP16 in the graph that was made becomes what FP16 makes of its size: infinite, or 0; weights as there."""
    graph, names = model.graph, _in_fp16(onnx, made)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {each.name: each.type.tensor_type.elem_type for each in (*inferred.value_info, *inferred.output)}
    numpy_helper = onnx.numpy_helper
    weights = {each.name: each for each in made.graph.initializer if each.data_type == FLOAT16}
    for each in graph.initializer:
        if each.data_type == FLOAT and each.name in weights:
            held = numpy_helper.to_array(weights[each.name]).astype(np.float32)
            each.CopyFrom(numpy_helper.from_array(held, each.name))
    constants = {"largest": LARGEST, "least": LEAST, "most": TO_INFINITY, "zero": 0.0}
    graph.initializer.extend(
        numpy_helper.from_array(np.array(number, np.float32), OWN + name) for name, number in constants.items()
    )
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        graph.node.append(node)
        for at, name in enumerate(node.output):
            if name in names and types.get(name) == FLOAT and node.op_type != "Constant":
                graph.node[-1].output[at] = f"{OWN}raw_{name}"
                graph.node.extend(_held(onnx, name))


def _held(onnx: Any, name: str) -> Iterator[Any]:
    """Nodes that make the value of what comes under its raw name."""
    node = onnx.helper.make_node
    raw, size, above, huge, below, most = (
        f"{OWN}{each}_{name}" for each in ("raw", "size", "above", "huge", "below", "most")
    )
    yield node("Abs", [raw], [size])
    yield node("Greater", [size, f"{OWN}largest"], [above])
    yield node("Mul", [raw, f"{OWN}most"], [huge])
    yield node("Where", [above, huge, raw], [most])
    yield node("Less", [size, f"{OWN}least"], [below])
    yield node("Where", [below, f"{OWN}zero", most], [name])
