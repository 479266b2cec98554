"""Small models of several frameworks for perf.macro.frameworks, each in its own file, and how one is called alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from perf import machine

IMAGE: Final = (1, 3, 160, 160)
CHANNELS: Final = (3, 32, 64, 128)
LAST_SIDE: Final = IMAGE[-1] >> (len(CHANNELS) - 1)
CLASSES: Final = 10
HIDDEN: Final = 700_000
LARGE_MB: Final = 4 * HIDDEN * (64 + CLASSES) // 1_000_000
Call = Callable[[np.ndarray], np.ndarray]


class Framework(NamedTuple):
    """How a framework writes the models, and calls one without a server.

    identity, network, large: write the model's file; call: the file as a function of an array.
    """

    backend: str
    identity: Callable[[Path], None]
    network: Callable[[Path], None]
    large: Callable[[Path], None]
    call: Callable[[Path], Call]


def _script(module: Any, path: Path) -> None:
    import torch  # noqa: PLC0415 - of its own rows only

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions would rather have it exported
        torch.jit.script(module.eval()).save(str(path / "model.pt"))


def torch_identity(path: Path) -> None:
    """What goes in comes out."""
    import torch  # noqa: PLC0415

    _script(torch.nn.Identity(), path)


def torch_network(path: Path) -> None:
    """Convolutions that take 2 to 10 ms of two cores, in each framework."""
    from torch import nn  # noqa: PLC0415

    layers: list[nn.Module] = []
    for given, made in zip(CHANNELS, CHANNELS[1:], strict=False):
        layers += [nn.Conv2d(given, made, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    _script(nn.Sequential(*layers, nn.Flatten(), nn.Linear(CHANNELS[-1] * LAST_SIDE**2, CLASSES)), path)


def torch_large(path: Path) -> None:
    """Two layers with a wide one between them."""
    from torch import nn  # noqa: PLC0415

    _script(nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)), path)


def torch_call(path: Path) -> Call:
    """The module, without gradients, with as many threads as an instance has."""
    import torch  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.load(path / "model.pt").eval()
    torch.set_num_threads(machine.cores())

    def call(array: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return module(torch.from_numpy(array)).numpy()

    return call


def _save(path: Path, nodes: list[Any], dims: tuple[list[Any], list[Any]], weights: dict[str, np.ndarray]) -> None:
    import onnx  # noqa: PLC0415 - of its own rows only

    kind = onnx.TensorProto.FLOAT
    sides = [
        [onnx.helper.make_tensor_value_info(name, kind, each)]
        for name, each in zip(("INPUT0", "OUTPUT0"), dims, strict=True)
    ]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, "bench", *sides, constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path / "model.onnx")


def _node(kind: str, given: list[str], made: str, **attributes: Any) -> Any:
    import onnx  # noqa: PLC0415

    return onnx.helper.make_node(kind, given, [made], **attributes)


def onnx_identity(path: Path) -> None:
    """As torch_identity."""
    _save(path, [_node("Identity", ["INPUT0"], "OUTPUT0")], (["n"], ["n"]), {})


def onnx_network(path: Path) -> None:
    """As torch_network."""
    chance, nodes, weights, last = np.random.default_rng(1), [], {}, "INPUT0"
    for at, (given, made) in enumerate(zip(CHANNELS, CHANNELS[1:], strict=False)):
        weights[f"w{at}"] = chance.standard_normal((made, given, 3, 3), np.float32) / 9
        nodes += [
            _node("Conv", [last, f"w{at}"], f"c{at}", pads=[1, 1, 1, 1]),
            _node("Relu", [f"c{at}"], f"r{at}"),
            _node("MaxPool", [f"r{at}"], f"p{at}", kernel_shape=[2, 2], strides=[2, 2]),
        ]
        last = f"p{at}"
    weights["w"] = chance.standard_normal((CHANNELS[-1] * LAST_SIDE**2, CLASSES), np.float32) / 99
    nodes += [_node("Flatten", [last], "f"), _node("MatMul", ["f", "w"], "OUTPUT0")]
    _save(path, nodes, (["n", *IMAGE[1:]], ["n", CLASSES]), weights)


def onnx_large(path: Path) -> None:
    """As torch_large."""
    _onnx_layers(path, HIDDEN)


def onnx_five_mb(path: Path) -> None:
    """Two layers whose weights are 5 MB."""
    _onnx_layers(path, 5_000_000 // 4 // (64 + CLASSES))


def onnx_small(path: Path) -> None:
    """Two layers, of digits."""
    _onnx_layers(path, 64)


def _onnx_layers(path: Path, hidden: int) -> None:
    chance = np.random.default_rng(1)
    sizes = {"a": (64, hidden), "b": (hidden, CLASSES)}
    weights = {name: chance.standard_normal(size, np.float32) for name, size in sizes.items()}
    nodes = [_node("MatMul", ["INPUT0", "a"], "h"), _node("Relu", ["h"], "r"), _node("MatMul", ["r", "b"], "OUTPUT0")]
    _save(path, nodes, ([1, 64], [1, CLASSES]), weights)


def onnx_call(path: Path) -> Call:
    """A session with as many threads as an instance has."""
    import onnxruntime  # noqa: PLC0415 - of its own rows only

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = machine.cores()
    session = onnxruntime.InferenceSession(path / "model.onnx", options, providers=["CPUExecutionProvider"])
    return lambda array: session.run(None, {"INPUT0": array})[0]


FRAMEWORKS: Final = {
    "TorchScript": Framework("pytorch", torch_identity, torch_network, torch_large, torch_call),
    "ONNX": Framework("onnxruntime", onnx_identity, onnx_network, onnx_large, onnx_call),
}
