"""The formats, what each needs on this machine, and which step makes it of which source.  Layer 5 (convert)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Final, NamedTuple

from tisfast.config.backends import Backends
from tisfast.errors import BadRequest


class Format(NamedTuple):
    """file: what its backend calls it in a version's folder, "" for the source's; needs: modules that serve it."""

    name: str
    backend: str
    file: str
    needs: tuple[str, ...]


class Route(NamedTuple):
    """How a format is made of a kind of source.

    step: PACKAGE.MODULE.FUNCTION; needs: modules beside those that serve it; of_fp32: the step that makes it of what
    `step` makes of the source in fp32, "" where `step` makes it.
    """

    format: str
    precision: str
    step: str
    needs: tuple[str, ...] = ()
    of_fp32: str = ""


HERE: Final = "tisfast.convert"
FORMATS: Final = {
    each.name: each
    for each in (
        Format("pt2", "pytorch", "model.pt2", ("torch",)),
        Format("torchscript", "pytorch", "model.pt", ("torch",)),
        Format("torchscript-script", "pytorch", "model.pt", ("torch",)),
        Format("sklearn", "sklearn", "", ("sklearn", "joblib")),
        Format("savedmodel", "tensorflow", "model.savedmodel", ("tensorflow",)),
        Format("onnx", "onnxruntime", "model.onnx", ("onnxruntime",)),
        Format("openvino", "openvino", "model.xml", ("openvino",)),
        Format("tensorrt", "tensorrt", "model.plan", ("tensorrt",)),
        Format("treelite", "fil", "checkpoint.tl", ("treelite",)),
    )
}
PRECISIONS: Final = ("fp32", "fp16")


def _onnx(module: str, *needs: str, fp16: str = "onnx_steps.fp16") -> tuple[Route, ...]:
    """In both precisions, by a module's function `onnx`."""
    step = f"{HERE}.{module}.onnx"
    return Route("onnx", "fp32", step, needs), Route("onnx", "fp16", step, needs, f"{HERE}.{fp16}")


def _openvino(step: str) -> tuple[Route, ...]:
    step = f"{HERE}.{step}"
    return Route("openvino", "fp32", step), Route("openvino", "fp16", step, (), f"{HERE}.openvino_steps.fp16")


ROUTES: Final[dict[str, tuple[Route, ...]]] = {
    "onnx": (
        Route("onnx", "fp32", f"{HERE}.onnx_steps.copy"),
        Route("onnx", "fp16", f"{HERE}.onnx_steps.fp16", ("onnx",)),
        *_openvino("openvino_steps.from_onnx"),
        Route("tensorrt", "fp32", f"{HERE}.tensorrt_steps.from_onnx"),
        Route("tensorrt", "fp16", f"{HERE}.tensorrt_steps.from_onnx", ("onnx",)),
    ),
    "module": (
        Route("pt2", "fp32", f"{HERE}.torch_steps.export"),
        Route("torchscript", "fp32", f"{HERE}.torch_steps.trace"),
        Route("torchscript-script", "fp32", f"{HERE}.torch_steps.script"),
        *_onnx("torch_steps", "onnx", "onnxscript"),
        *_openvino("torch_steps.to_openvino"),
    ),
    "torchscript": (
        Route("torchscript", "fp32", f"{HERE}.torch_steps.copy"),
        *_onnx("torch_steps", "onnx"),
        *_openvino("torch_steps.to_openvino"),
    ),
    "pt2": (
        Route("pt2", "fp32", f"{HERE}.torch_steps.copy"),
        *_onnx("torch_steps", "onnx", "onnxscript"),
        *_openvino("torch_steps.to_openvino"),
    ),
    "savedmodel": (
        Route("savedmodel", "fp32", f"{HERE}.tensorflow_steps.copy"),
        *_onnx("tensorflow_steps", "onnx", "tf2onnx"),
        *_openvino("tensorflow_steps.to_openvino"),
    ),
    "sklearn": (
        Route("sklearn", "fp32", f"{HERE}.sklearn_steps.copy"),
        *_onnx("sklearn_steps", "onnx", "skl2onnx", fp16="sklearn_steps.fp16"),
        Route("treelite", "fp32", f"{HERE}.sklearn_steps.forest", ("sklearn",)),
    ),
}
"""By the kind of source; those that change less of it come first."""
REFERENCES: Final = {
    "onnx": (f"{HERE}.onnx_steps.reference", ("onnxruntime",)),
    "module": (f"{HERE}.torch_steps.reference", ("torch",)),
    "torchscript": (f"{HERE}.torch_steps.reference", ("torch",)),
    "pt2": (f"{HERE}.torch_steps.reference", ("torch",)),
    "savedmodel": (f"{HERE}.tensorflow_steps.reference", ("tensorflow",)),
    "sklearn": (f"{HERE}.sklearn_steps.reference", ("sklearn", "joblib")),
}
"""The step that asks the source itself, and the modules that it needs."""
SOURCES: Final = {
    "onnx": "a graph of ONNX",
    "module": "a module of PyTorch",
    "torchscript": "TorchScript",
    "pt2": "a program of torch.export",
    "savedmodel": "a SavedModel",
    "sklearn": "an estimator of scikit-learn",
}
PIP: Final = {
    "onnxruntime": "pip install 'tisfast[onnx]'",
    "openvino": "pip install 'tisfast[openvino]'",
    "tensorflow": "pip install 'tisfast[tensorflow]'",
    "tf2onnx": "pip install tf2onnx",
    "torch": "pip install 'tisfast[torch]'",
    "tensorrt": "pip install 'tisfast[tensorrt]' on a machine with an NVIDIA GPU",
    "treelite": "pip install 'tisfast[trees]'",
    **dict.fromkeys(("sklearn", "joblib"), "pip install 'tisfast[sklearn]'"),
    **dict.fromkeys(("onnx", "onnxscript", "skl2onnx"), "pip install 'tisfast[convert]'"),
}


def missing(modules: Sequence[str]) -> str:
    """What this Python lacks of them and how it is installed, one sentence; "" where all are there."""
    absent = [each for each in modules if importlib.util.find_spec(each) is None]
    if not absent:
        return ""
    commands = "; ".join(dict.fromkeys(PIP[each] for each in absent))
    return f"needs {' and '.join(absent)}, which this Python does not have: {commands}"


def shared_by(kind: str) -> str:
    """The module that all steps of a kind of source share, "" for none: the one that workers of its backend share."""
    return Backends().imports_of(FORMATS[ROUTES[kind][0].format].backend)


def routes_of(kind: str, targets: Sequence[str], precisions: Sequence[str]) -> list[Route]:
    """Those that are asked for; targets: none for all.  Raises BadRequest."""
    for each in targets:
        if each not in FORMATS:
            raise BadRequest(f"--target {each} is no format that is known: there are {', '.join(FORMATS)}")
    for each in precisions:
        if each not in PRECISIONS:
            raise BadRequest(f"--precision {each} is not known: there are {' and '.join(PRECISIONS)}")
    possible = [each for each in ROUTES[kind] if each.precision in precisions]
    for each in targets:
        if not any(_is(each, route) for route in possible):
            made = ", ".join(dict.fromkeys(f"{route.format} {route.precision}" for route in ROUTES[kind]))
            raise BadRequest(
                f"--target {each}: {SOURCES[kind]} is not made into it with --precision {','.join(precisions)}; it is "
                f"made into {made}"
            )
    return [each for each in possible if not targets or any(_is(target, each) for target in targets)]


def _is(target: str, route: Route) -> bool:
    """`torchscript` names both ways to it."""
    return route.format == target or route.format.startswith(f"{target}-")
