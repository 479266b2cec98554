"""A graph of ONNX in FP16, and whether its numbers stay within what FP16 holds.  Layer 5 (convert).

ONNX Runtime computes most of FP16 in FP32 on a CPU, so that a product of 90000 inside of a graph harms nothing there,
and is infinite on a GPU.  So the graph is also run with each such number rounded to FP16 and back behind each operator,
as a GPU does it, whose sums within an operator are FP32.
"""

from __future__ import annotations

import importlib
import time
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
FLOAT: Final = 1
FLOAT16: Final = 10
"""Types of ONNX, by its numbers."""
OPSET_MIN: Final = 6
"""Casts before it are other operators, which the transformation does not write."""
WRONG: Final = "wrong"
NOTE: Final = "note"
"""Keys of what is told; each may be left out."""
OWN: Final = "tisfast_fp16_"
"""Begins the names of values that are added."""
UNSEEN: Final = "whether FP16 holds the numbers inside of it was not looked at"


def write_fp16(source: Path, target: Path, request: Mapping[str, Any] | None = None) -> dict[str, str]:
    """By ONNX Runtime's own transformation.  Gives WRONG and why, where FP16 does not hold its numbers, and a NOTE.

    request: of the step, with the samples that tell what its numbers are; None: that is not looked at.  Raises
    BadRequest where nothing would change, and for graphs before OPSET_MIN.
    """
    onnx = importlib.import_module("onnx")
    float16 = importlib.import_module("onnxruntime.transformers.float16")
    model = onnx.load(str(source))
    opset = max((each.version for each in model.opset_import if not each.domain), default=OPSET_MIN)
    if opset < OPSET_MIN:
        raise BadRequest(f"the graph is of opset {opset}, and FP16 of it needs {OPSET_MIN} at least: export it newer")
    with_unique_names(model.graph)  # the transformation knows one initializer of a name
    large = model.ByteSize() > ONE_FILE_BYTES_MAX
    whole, told = None, {}
    if request is not None and request["judged"]:
        told = {NOTE: f"{UNSEEN}, as `verify` judges: a GPU may answer otherwise"}
    elif request is not None and large:
        told = {NOTE: f"{UNSEEN}, as it is larger than 2 GiB: a GPU may answer otherwise"}
    elif request is not None:
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
    made = float16.convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=large)
    if not _has_fp16(made.graph):
        raise BadRequest("nothing of the graph is FP32, so that FP16 of it is the same graph: take fp32")
    if request is not None and whole is not None:
        told = _out_of_range(onnx, whole, made, request)
    # Its casts stand behind what they feed, which ONNX Runtime takes and ONNX does not allow.
    importlib.import_module("onnxruntime.transformers.onnx_model").OnnxModel(made).topological_sort()
    onnx.save(made, str(target), save_as_external_data=made.ByteSize() > ONE_FILE_BYTES_MAX, location="weights.bin")
    return told


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


def _out_of_range(onnx: Any, model: Any, made: Any, request: Mapping[str, Any]) -> dict[str, str]:
    """WRONG: how the outputs are others with numbers as FP16 holds them; NOTE: what of it was not looked at.

    model: is changed.
    """
    began = time.monotonic()
    until = began + (request["until"] - began) * limits.CONVERT_RANGE_TIME_SHARE
    cases = _samples(request)
    plain = _session(model)
    names = [each.name for each in plain.get_inputs()]
    if not cases or set(names) != set(cases[0].feeds):
        return {NOTE: f"{UNSEEN}, as its inputs ({', '.join(names)}) are not those of the samples"}
    _round_to_fp16(onnx, model, made)
    half = _session(model, optimized=False)  # so that no two casts are taken for none
    outputs = [each.name for each in plain.get_outputs()]
    wanted: list[list[Array]] = []
    found: list[list[Array]] = []
    for case in cases:
        wanted.append([np.asarray(each) for each in plain.run(outputs, case.feeds)])
        rounded = {name: _rounded(array) for name, array in case.feeds.items()}
        found.append([np.asarray(each) for each in half.run(outputs, rounded)])
        if time.monotonic() > until:
            break
    told = {}
    if len(wanted) < len(cases):
        seen = f"with {len(wanted)} of {len(cases)} samples"
        told[NOTE] = f"whether FP16 holds the numbers inside of it was looked at {seen}: --step-seconds gives more time"
    for place, output in enumerate(outputs):
        wrong = _differs(output, [each[place] for each in wanted], [each[place] for each in found], cases, request)
        if wrong:
            told[WRONG] = (
                f"FP16 does not hold numbers inside of it ({LARGEST:g} at most, with 11 bits each): {wrong}. A CPU "
                "does not show that, as it computes in FP32; a GPU does"
            )
            break
    return told


def _differs(
    output: str, wanted: Sequence[Array], found: Sequence[Array], cases: Sequence[Case], request: Mapping[str, Any]
) -> str:
    """Of one output, the first that is outside of the tolerances; "" where none is.  Whole numbers are not compared."""
    if wanted[0].dtype.kind != "f" or any(each.ndim != wanted[0].ndim for each in wanted):
        return ""
    own = allowed("fp16", wanted[0], scales_of(wanted, _dims(wanted)), request["atol"], request["rtol"])
    seen = Difference()
    for case, first, second in zip(cases, wanted, found, strict=False):
        seen.add(output, case.name, first, second, own)
    return seen.wrong


def _session(model: Any, optimized: bool = True) -> Any:
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    if not optimized:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _dims(arrays: Sequence[Array]) -> list[int]:
    sizes = zip(*(each.shape for each in arrays), strict=True)
    return [every[0] if len(set(every)) == 1 else -1 for every in sizes]


def _rounded(array: Array) -> Array:
    """FP32 to FP16 and back, so that large numbers are infinite; others as they are."""
    if array.dtype != np.float32:
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)


def _with_subgraphs(graph: Any) -> Iterator[Any]:
    yield graph
    for each in subgraphs(graph.node):
        yield from _with_subgraphs(each)


def _types(onnx: Any, model: Any) -> dict[str, int]:
    """FLOAT and FLOAT16 of values, those of subgraphs, too.

    ONNX does not infer those behind operators that are not its own: ONNX Runtime does, but not within subgraphs.
    """
    inferred = onnx.shape_inference.infer_shapes(model).graph
    found = {
        each.name: each.type.tensor_type.elem_type
        for graph in _with_subgraphs(inferred)
        for each in (*graph.value_info, *graph.output)
    }
    unknown = [name for node in model.graph.node for name in node.output if name and not found.get(name)]
    if unknown:
        asked = onnx.ModelProto()
        asked.CopyFrom(model)
        given = {each.name for each in model.graph.output}
        asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in unknown if name not in given)
        for each in _session(asked, optimized=False).get_outputs():
            found[each.name] = {"tensor(float)": FLOAT, "tensor(float16)": FLOAT16}.get(each.type, 0)
    return found


def _in_fp16(onnx: Any, made: Any) -> set[str]:
    """Values that are FP16 in the graph that was made, or are cast to or from it."""
    found = {name for name, kind in _types(onnx, made).items() if kind == FLOAT16}
    for graph in _with_subgraphs(made.graph):
        for node in graph.node:
            if node.op_type == "Cast":
                (to,) = (each.i for each in node.attribute if each.name == "to")
                if to == FLOAT16:
                    found.add(node.input[0])
                elif to == FLOAT and node.input[0] in found:
                    found.add(node.output[0])
    return found


def _round_to_fp16(onnx: Any, model: Any, made: Any) -> None:
    """What is FP16 in the graph that was made is rounded to it and back; weights and constants are as there.

    The inputs are what they are: who asks rounds them.
    """
    names, types = _in_fp16(onnx, made), _types(onnx, model)
    weights = {
        each.name: each
        for graph in _with_subgraphs(made.graph)
        for each in graph.initializer
        if each.data_type == FLOAT16
    }
    inputs = {each.name for each in model.graph.input}  # of old graphs weights, too, which are cast while it runs
    for graph in reversed([*_with_subgraphs(model.graph)]):  # a subgraph before the node that has it is copied
        for each in graph.initializer:
            if each.data_type == FLOAT and each.name in inputs:
                _set(onnx, each, _rounded(onnx.numpy_helper.to_array(each)))
            elif each.data_type == FLOAT and each.name in weights:
                _set(onnx, each, onnx.numpy_helper.to_array(weights[each.name]))
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            rounded = [name for name in node.output if name in names and types.get(name) == FLOAT]
            _hold_constants(onnx, node, rounded)
            node.output[:] = [f"{OWN}raw_{name}" if name in rounded else name for name in node.output]
            graph.node.append(node)
            for name in rounded:
                raw, half = f"{OWN}raw_{name}", f"{OWN}half_{name}"
                graph.node.append(onnx.helper.make_node("Cast", [raw], [half], to=FLOAT16))
                graph.node.append(onnx.helper.make_node("Cast", [half], [name], to=FLOAT))


def _hold_constants(onnx: Any, node: Any, rounded: Sequence[str]) -> None:
    """Of a node whose values are to be rounded: -1e9 becomes -65504 and not infinity, as the transformation does it."""
    float16 = importlib.import_module("onnxruntime.transformers.float16")
    for each in node.attribute if rounded else ():
        if each.HasField("t") and each.t.data_type == FLOAT:
            numbers = onnx.numpy_helper.to_array(each.t)  # perhaps one of no dimensions, which it does not take
            _set(onnx, each.t, float16.convert_np_to_float16(np.atleast_1d(numbers)).reshape(numbers.shape))


def _set(onnx: Any, tensor: Any, numbers: Array) -> None:
    tensor.CopyFrom(onnx.numpy_helper.from_array(numbers.astype(np.float32), tensor.name))
