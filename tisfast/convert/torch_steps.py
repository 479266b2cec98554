"""Steps of PyTorch, in a process of their own: modules, TorchScript, programs of torch.export.  Layer 5 (convert)."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import shutil
import sys
import traceback
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tisfast.convert.handed_over import taken
from tisfast.convert.open_sizes import (
    BATCH,
    FixedSize,
    as_exported,
    axes_of,
    check_program,
    example_of,
    one_shape,
    shapes_of,
    violated,
)
from tisfast.convert.openvino_steps import openvino, write
from tisfast.convert.references import FEEDS, Array, answer, given_samples
from tisfast.convert.samples import Case, load_cases
from tisfast.convert.signature import Signature
from tisfast.convert.steps import shortened
from tisfast.convert.traced_signature import FEW, MORE, Run, resized, signature_of
from tisfast.errors import BadRequest

WRAPPER: Final = (
    "write a module around it whose forward takes each tensor as an argument of its own, and returns a tensor, or a "
    "tuple, list or dictionary of them"
)


def reference(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Answers of the program itself, and the signature that these tell."""
    torch = importlib.import_module("torch")
    samples = given_samples(request)
    if not samples:
        raise BadRequest(
            f"{request['text']} does not tell the shapes of its inputs: give --samples FILE.npz, with an array for each"
        )
    program, names = opened(torch, request)
    run = _runner(torch, program, names)
    is_exported = request["kind"] == "pt2"
    fixed = _fixed_rows(program, samples) if is_exported else ""
    _check_arguments(samples[0], names)
    _check_types(samples[0], run)
    signature = signature_of(samples, run, names, no_batch=request["no_batch"])
    if is_exported:
        signature = as_exported(signature, program)
    told = answer(request, folder, signature, samples, run)
    notes = (fixed, "" if is_exported else one_shape(signature))
    return {**told, "notes": [*told["notes"], *(each for each in notes if each)]}


def copy(request: Mapping[str, Any], _: Path) -> None:
    """The file as it is."""
    shutil.copyfile(request["source"], request["target"])


def trace(request: Mapping[str, Any], _: Path) -> None:
    """TorchScript of what the module does for a sample."""
    torch, module, given = _prepared(request)
    argument = "example_kwarg_inputs" if given.named else "example_inputs"
    with torch.no_grad():
        # What it answers to other samples is compared later on.
        traced = torch.jit.trace(module, **{argument: _inputs(given, request)}, strict=False, check_trace=False)
    traced.save(request["target"])


def script(request: Mapping[str, Any], _: Path) -> None:
    """TorchScript of the module's code."""
    torch, module, _given = _prepared(request)
    torch.jit.script(module).save(request["target"])


def export(request: Mapping[str, Any], _: Path) -> None:
    """A program of torch.export."""
    torch, module, example = _prepared(request)
    torch.export.save(_exported(torch, module, example, request), request["target"])


def onnx(request: Mapping[str, Any], _: Path) -> None:
    """A graph of ONNX."""
    torch, program, given = _prepared(request)
    _write_onnx(torch, program, given, request, Path(request["target"]))


def to_openvino(request: Mapping[str, Any], folder: Path) -> None:
    """An IR, by OpenVINO's own reader of programs; of what it does not read by way of ONNX."""
    torch, program, given = _prepared(request)
    signature = Signature.read(request["signature"])
    ov = openvino()
    if request["kind"] == "pt2":
        model = ov.convert_model(program)
    else:
        model = _openvino_of_code(ov, torch, program, given, request, folder)
    for tensors, ports in ((signature.inputs, model.inputs), (signature.outputs, model.outputs)):
        for tensor, port in zip(tensors, ports, strict=True):
            port.get_tensor().set_names({tensor.name})
    model.reshape({each.name: list(each.dims) for each in signature.inputs})
    write(ov, model, request)


# ---- parts


def _names(request: Mapping[str, Any]) -> dict[str, list[str]]:
    """Of tensors, for exporters to ONNX."""
    signature = Signature.read(request["signature"])
    return {
        "input_names": [each.name for each in signature.inputs],
        "output_names": [each.name for each in signature.outputs],
    }


def _write_onnx(torch: Any, program: Any, given: Example, request: Mapping[str, Any], target: Path) -> None:
    """A graph of ONNX of any source."""
    if request["kind"] != "torchscript":
        try:
            made = program if request["kind"] == "pt2" else _exported(torch, program, given, request)
            torch.onnx.export(made, (), str(target), dynamo=True, verbose=False, **_names(request))
            return
        except FixedSize:
            traceback.print_exc()  # a trace may keep that size open
    _onnx_of_trace(torch, program, given, request, target)


def _onnx_of_trace(torch: Any, program: Any, given: Example, request: Mapping[str, Any], target: Path) -> None:
    """By the older exporter: the newer one takes no TorchScript, and writes out the steps of an LSTM."""
    axes = axes_of(Signature.read(request["signature"]))
    with torch.no_grad():
        torch.onnx.export(
            program, given.args, str(target), kwargs=given.named or None, dynamo=False, dynamic_axes=axes,
            **_names(request),
        )  # fmt: skip


def _openvino_of_code(
    ov: Any, torch: Any, program: Any, given: Example, request: Mapping[str, Any], folder: Path
) -> Any:
    """A model of OpenVINO's, of a module or TorchScript.

    TorchScript of a module's code says no types.  OpenVINO's reader refuses some such programs, of others it makes
    graphs that no device runs; the exporter to ONNX finds the types by the example.  It refuses modules, too, that
    answer with several kernels (nn.TransformerEncoderLayer), as its traces of them differ.
    """
    try:
        model = ov.convert_model(program, example_input=_inputs(given, request))
        if not any(each.get_element_type().is_dynamic() for node in model.get_ops() for each in node.outputs()):
            return model
        why = "it finds no types in the program"
    except Exception as error:  # of many kinds
        traceback.print_exc()
        why = shortened(f"{type(error).__name__}: {error}")
    graph = folder / "program.onnx"
    try:
        _write_onnx(torch, program, given, request, graph)
        return ov.convert_model(str(graph))
    except Exception as error:
        by_onnx = f"nor by way of ONNX ({type(error).__name__}: {error})"
        if request["kind"] == "module":
            raise RuntimeError(f"OpenVINO does not read this module, {by_onnx}: {why}") from error
        raise RuntimeError(
            f"OpenVINO does not read this TorchScript ({why}), {by_onnx}; give the module itself, as FILE.py:FACTORY, "
            "or a trace of it (torch.jit.trace)"
        ) from error


def opened(torch: Any, request: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The program, and the names of its inputs.  Raises BadRequest."""
    kind, source = request["kind"], request["source"]
    if kind == "torchscript":
        try:
            program = torch.jit.load(source, map_location="cpu").eval()
        except RuntimeError as error:
            _check_script(Path(source), error)
            raise
        return program, [each.name for each in program.forward.schema.arguments[1:]]
    if kind == "pt2":
        program = torch.export.load(source)
        return program, list(program.graph_signature.user_inputs)
    module = _module(torch, request)
    parameters = inspect.signature(module.forward).parameters.values()
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return module.eval(), [each.name for each in parameters if each.kind in places]


def _check_arguments(sample: Mapping[str, Array], names: Sequence[str]) -> None:
    """Raises BadRequest for an array that is no argument of the program."""
    if unknown := [each for each in sample if each not in names]:
        raise BadRequest(
            f"the samples have an array '{unknown[0]}', and the program's inputs are {', '.join(names)}: each array is "
            f"one of them; where one is a dictionary, tuple or list of tensors, {WRAPPER}"
        )


def _check_types(sample: dict[str, Array], run: Run) -> None:
    """Raises BadRequest for FP64, numpy's own type, in place of FP32."""
    double = [name for name, each in sample.items() if each.dtype == np.float64]
    if not double:
        return
    try:
        run(sample)
    except Exception as error:  # the framework's own
        try:
            run({name: each.astype(np.float32) if name in double else each for name, each in sample.items()})
        except Exception:
            return  # it is asked once more, and says why
        raise BadRequest(
            f"the samples' '{double[0]}' is FP64, numpy's own type, and the module takes FP32 alone: "
            f"{double[0]}.astype('f4') makes it that ({shortened(str(error))})"
        ) from error


def _fixed_rows(program: Any, samples: Sequence[Mapping[str, Array]]) -> str:
    """Of a program whose first dimensions are fixed: what is to be known, one sentence; "" of others.

    Raises BadRequest for samples of shapes that it does not take.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    values = {name: nodes[name].meta["val"] for name in program.graph_signature.user_inputs if name in nodes}
    shapes = {name: [dim if isinstance(dim, int) else -1 for dim in each.shape] for name, each in values.items()}
    rows = {shape[0] for shape in shapes.values() if shape} - {-1}
    hint = f"export it with dynamic_shapes={{'{next(iter(shapes), '')}': {{0: torch.export.Dim('batch')}}}}"
    for sample in samples:
        for name, wanted in shapes.items():
            given = list(sample[name].shape) if name in sample else wanted
            if len(given) != len(wanted) or any(dim not in (-1, size) for dim, size in zip(wanted, given, strict=True)):
                more = f"; for rows of any number {hint}" if rows else ""
                raise BadRequest(
                    f"the samples' '{name}' is shaped {given}, and the program was exported for {wanted} and takes "
                    f"nothing else{more}"
                )
    if len(rows) != 1:
        return ""
    return f"the program takes exactly {rows.pop()} rows in a request, so there are no batches; for any number {hint}"


def _check_script(path: Path, error: Exception) -> None:
    """Raises BadRequest for a file that is no TorchScript at all, which torch says less well."""
    module = "give the module itself, as FILE.py:FACTORY, which loads it"
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name.partition("/")[2] for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        raise BadRequest(
            f"{path} is no TorchScript: that is an archive, and this is none, but a checkpoint of an older torch.save, "
            f"or damaged; {module}"
        ) from error
    if "data.pkl" in files and "constants.pkl" not in files:
        raise BadRequest(f"{path} is a checkpoint of torch.save, and no TorchScript: {module}") from error


def _module(torch: Any, request: Mapping[str, Any]) -> Any:
    if request["pickle"]:
        made = taken(request)
    else:
        made = _factory(request["text"])
        if not isinstance(made, torch.nn.Module):
            made = made()
    if not isinstance(made, torch.nn.Module):
        raise BadRequest(f"{request['text']} gives a {type(made).__name__}, and must give a torch.nn.Module")
    return made


def _factory(text: str) -> Any:
    """MODULE:NAME or FILE.py:NAME, as Python would import it in this folder."""
    place, _, name = text.rpartition(":")
    if place.endswith(".py"):
        path = Path(place).absolute()
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise BadRequest(f"{text}: there is no module {error.name}") from None
    found = getattr(module, name, None)
    if not callable(found):
        raise BadRequest(f"{text}: {place} has no callable '{name}', which gives a torch.nn.Module")
    return found


class Example(NamedTuple):
    """Inputs of one call: those in front by position, and by name those behind one that is not given."""

    args: tuple[Any, ...]
    named: dict[str, Any]


def _example(given: Mapping[str, Any], names: Sequence[str]) -> Example:
    """names: of all inputs, in the program's order, as `given` has them."""
    count = next((at for at, name in enumerate(names) if name not in given), len(names))
    front = names[:count]
    return Example(tuple(given[name] for name in front), {name: given[name] for name in given if name not in front})


def _inputs(given: Example, request: Mapping[str, Any]) -> Any:
    """As exporters that take one thing want them: by position, or where one is left out all by name."""
    if not given.named:
        return given.args
    names = [each.name for each in Signature.read(request["signature"]).inputs]
    return {**dict(zip(names, given.args, strict=False)), **given.named}


def _prepared(request: Mapping[str, Any]) -> tuple[Any, Any, Example]:
    """(torch, program, an example of its inputs): of some rows, as exporters take one row for a constant."""
    torch = importlib.import_module("torch")
    program, names = opened(torch, request)
    signature = Signature.read(request["signature"])
    feeds = example_of(_cases(request), signature)
    sizes = {size for each in feeds.values() for size in each.shape[1:]}
    rows = resized(feeds, MORE if FEW in sizes else FEW) if signature.batches else feeds
    return torch, program, _example({name: torch.from_numpy(np.array(array)) for name, array in rows.items()}, names)


def _cases(request: Mapping[str, Any]) -> list[Case]:
    """The samples, as requests."""
    inputs = Signature.read(request["signature"]).inputs
    return load_cases(Path(request["reference"]) / FEEDS, inputs, request["cases"])


def _exported(torch: Any, module: Any, example: Example, request: Mapping[str, Any]) -> Any:
    signature, batch = Signature.read(request["signature"]), None
    if signature.batches:
        # Where the server knows of no batch, it holds no request against its size.
        most = None if signature.mixes else max(request["max_batch_size"], MORE)
        batch = torch.export.Dim(BATCH, min=1, max=most)
    shapes = shapes_of(torch, signature, batch)
    try:
        with torch.no_grad():
            program = torch.export.export(module, example.args, example.named or None, dynamic_shapes=shapes)
    except Exception as error:
        raise violated(error) or error from error
    check_program(program, signature, _cases(request))
    return program


def _runner(torch: Any, program: Any, names: Sequence[str]) -> Run:
    call = program.module() if hasattr(program, "graph_signature") else program

    def run(feeds: dict[str, Array]) -> dict[str, Array]:
        with torch.no_grad():
            given = {name: torch.from_numpy(np.array(each)) for name, each in feeds.items()}
            example = _example(given, names)
            return named(torch, call(*example.args, **example.named))

    return run


def named(torch: Any, found: Any) -> dict[str, Array]:
    """What a program returns, by the names that the pytorch backend knows it by.  Raises BadRequest."""
    if isinstance(found, torch.Tensor):
        found = (found,)
    if hasattr(found, "_asdict"):
        found = found._asdict()
    if isinstance(found, Sequence):
        found = {f"output__{at}": each for at, each in enumerate(found)}
    kinds = [found] if not isinstance(found, Mapping) else list(found.values())
    if others := [type(each).__name__ for each in kinds if not isinstance(each, torch.Tensor)]:
        raise BadRequest(
            "the program must return a tensor, or a tuple, list or dictionary of tensors and nothing else, and this "
            f"one returns {'' if kinds[0] is found else 'one with '}a {others[0]}: {WRAPPER}"
        )
    return {str(name): np.array(each.detach().cpu().numpy()) for name, each in found.items()}
