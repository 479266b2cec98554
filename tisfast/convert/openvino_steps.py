"""Steps of OpenVINO, in a process of their own.  Layer 5 (convert)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tisfast.convert.onnx_steps import graph_of


def openvino() -> Any:
    """The module, without telling Intel that it is used."""
    modules: dict[str, Any] = sys.modules
    modules["openvino_telemetry"] = None  # so it cannot be imported
    return importlib.import_module("openvino")


def from_onnx(request: Mapping[str, Any], _: Path) -> None:
    """An IR of a graph of ONNX."""
    ov = openvino()
    write(ov, ov.convert_model(str(graph_of(request["source"]))), request)


def fp16(request: Mapping[str, Any], _: Path) -> None:
    """An IR of an IR: its weights are of FP16, computed in what the device has."""
    ov = openvino()
    ov.save_model(ov.Core().read_model(request["source"]), request["target"], compress_to_fp16=True)


def write(ov: Any, model: Any, request: Mapping[str, Any]) -> None:
    """The two files of an IR, in the types that the model has."""
    ov.save_model(model, request["target"], compress_to_fp16=False)
