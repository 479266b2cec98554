"""The formats, what each needs on this machine, and which step makes it of which source.  Layer 5 (convert)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Final, NamedTuple

from tisfast.errors import BadRequest


class Format(NamedTuple):
    """file: what its backend calls it in a version's folder; needs: modules that serve it."""

    name: str
    backend: str
    file: str
    needs: tuple[str, ...]


class Route(NamedTuple):
    """How a format is made of a kind of source.  step: PACKAGE.MODULE.FUNCTION; needs: modules beside those
    that serve it."""

    format: str
    precision: str
    step: str
    needs: tuple[str, ...] = ()


HERE: Final = "tisfast.convert"
ONNX: Final = Format("onnx", "onnxruntime", "model.onnx", ("onnxruntime",))
OPENVINO: Final = Format("openvino", "openvino", "model.xml", ("openvino",))
FORMATS: Final = {each.name: each for each in (ONNX, OPENVINO)}
PRECISIONS: Final = ("fp32", "fp16")
ROUTES: Final[dict[str, tuple[Route, ...]]] = {
    "onnx": (
        Route("onnx", "fp32", f"{HERE}.onnx_steps.copy"),
        Route("onnx", "fp16", f"{HERE}.onnx_steps.fp16", ("onnx",)),
        Route("openvino", "fp32", f"{HERE}.openvino_steps.from_onnx"),
        Route("openvino", "fp16", f"{HERE}.openvino_steps.from_onnx"),
    ),
}
"""By the kind of source; those that change less of it come first."""
REFERENCES: Final = {"onnx": (f"{HERE}.onnx_steps.reference", ("onnxruntime",))}
"""The step that asks the source itself, and the modules that it needs."""
SOURCES: Final = {"onnx": "an ONNX graph"}
PIP: Final = {
    "onnxruntime": "pip install 'tisfast[onnx]'",
    "onnx": "pip install 'tisfast[convert]'",
    "openvino": "pip install 'tisfast[openvino]'",
}


def missing(modules: Sequence[str]) -> str:
    """What this Python lacks of them and how it is installed, one sentence; "" where all are there."""
    absent = [each for each in modules if importlib.util.find_spec(each) is None]
    if not absent:
        return ""
    commands = "; ".join(dict.fromkeys(PIP[each] for each in absent))
    return f"needs {' and '.join(absent)}, which this Python does not have: {commands}"


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
        if each not in [route.format for route in possible]:
            made = ", ".join(dict.fromkeys(f"{route.format} {route.precision}" for route in ROUTES[kind]))
            raise BadRequest(
                f"--target {each}: {SOURCES[kind]} is not made into it with --precision {','.join(precisions)}; it is "
                f"made into {made}"
            )
    return [each for each in possible if not targets or each.format in targets]
