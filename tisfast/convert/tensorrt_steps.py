"""Steps of TensorRT, in a process of their own: plans of ONNX graphs, built for the GPU of this machine.

Layer 5 (convert).  Written against the documented interface of TensorRT 10 and 11.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tisfast.convert.onnx_fp16 import write_fp16
from tisfast.convert.onnx_steps import graph_of
from tisfast.convert.references import FEEDS
from tisfast.convert.samples import Case, load_cases
from tisfast.convert.signature import Signature


def from_onnx(request: Mapping[str, Any], folder: Path) -> None:
    """A plan that takes the shapes of the samples, alone and in batches.

    fp16: of the graph in FP16.  Networks are strongly typed: what TensorRT computes is what the graph says.
    """
    tensorrt = importlib.import_module("tensorrt")
    source = graph_of(request["source"])
    if request["precision"] == "fp16":
        write_fp16(source, folder / "half.onnx")
        source = folder / "half.onnx"
    signature = Signature.read(request["signature"])
    feeds = load_cases(Path(request["reference"]) / FEEDS, signature.inputs, request["cases"])
    _build(tensorrt, source, feeds, Path(request["target"]))


def _build(tensorrt: Any, source: Path, feeds: Sequence[Case], target: Path) -> None:
    logger = _logger(tensorrt)
    builder = tensorrt.Builder(logger)
    typed = getattr(tensorrt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)  # 11 has no other networks
    network = builder.create_network(0 if typed is None else 1 << int(typed))
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(source)):
        errors = [str(parser.get_error(at)) for at in range(parser.num_errors)]
        raise RuntimeError("; ".join(errors) or "TensorRT cannot read the graph")
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    for at in range(network.num_inputs):
        name = network.get_input(at).name
        sizes = [list(each) for each in zip(*(case.feeds[name].shape for case in feeds), strict=True)]
        least, most = tuple(map(min, sizes)), tuple(map(max, sizes))
        profile.set_shape(name, least, most, most)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("; ".join(logger.errors) or "TensorRT builds no plan, and does not say why")
    with target.open("wb") as file:
        file.write(plan)


def _logger(tensorrt: Any) -> Any:
    """One that keeps errors.  Its class can only be made of TensorRT's own."""
    severity = tensorrt.ILogger.Severity
    grave = (severity.INTERNAL_ERROR, severity.ERROR)

    def init(self: Any) -> None:
        tensorrt.ILogger.__init__(self)
        self.errors = []

    def log(self: Any, kind: Any, text: str) -> None:
        if kind in grave:
            self.errors.append(text)

    return type("Errors", (tensorrt.ILogger,), {"__init__": init, "log": log})()
