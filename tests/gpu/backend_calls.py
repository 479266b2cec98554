"""Calls of models that frameworks run on a GPU: tensors of a request lie in CUDA regions, or travel with it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.gpu.gpu_models import register
from tisfast.native.nvml import open_nvml

REGION_BYTES = 1 << 20
ROWS = np.random.default_rng(1).standard_normal((8, 3, 16, 16)).astype(np.float32)
DTYPES = {
    "float16": "FP16", "float32": "FP32", "float64": "FP64", "bool": "BOOL", "uint8": "UINT8", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "bfloat16": "BF16", "object": "BYTES",
}  # fmt: skip
ONLY_ON_THE_GPU = """
from tisfast.native import cuda
copy = cuda._Device.copy
def copied(self, name, *arguments):
    assert name == "cuMemcpyDtoDAsync_v2", name
    copy(self, name, *arguments)
cuda._Device.copy = copied
"""
"""A server that copies no tensor between GPU and host, to be started with this as its `fault`."""


def network(torch: Any) -> tuple[Any, np.ndarray]:
    """A small convolution network, and what the processor makes of ROWS with it."""
    torch.manual_seed(7)
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3), torch.nn.Flatten()]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(4 * 14 * 14, 10)).eval()
    with torch.no_grad():
        return module, module(torch.from_numpy(ROWS)).numpy()


def doubling_plan(trt: Any) -> bytes:
    """A plan of TensorRT that doubles up to eight rows of four."""
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    definition = builder.create_network(0)
    rows = definition.add_input("X", trt.float32, (-1, 4))
    doubled = definition.add_elementwise(rows, rows, trt.ElementWiseOperation.SUM).get_output(0)
    doubled.name = "Y"
    definition.mark_output(doubled)
    profile, config = builder.create_optimization_profile(), builder.create_builder_config()
    profile.set_shape("X", (1, 4), (4, 4), (8, 4))
    config.add_optimization_profile(profile)
    return bytes(builder.build_serialized_network(definition, config))


class Caller:
    """A client of a server, by tritonclient's module, with one region for inputs and one for outputs."""

    def __init__(self, client: Any, module: Any, export: Callable[[int], Any]) -> None:
        """export: the fixture."""
        self.client, self._module = client, module
        self.given, self.wanted = export(REGION_BYTES), export(REGION_BYTES)
        register(client, "given", self.given)
        register(client, "wanted", self.wanted)

    def asked(
        self,
        arrays: Mapping[str, np.ndarray],
        places: Mapping[str, int],
        wanted: Mapping[str, tuple[int, int] | None],
    ) -> dict[str, Any]:
        """Arguments of a call.  places: of inputs in `given`; wanted: (offset, bytes) of outputs, None: by answer."""
        inputs, outputs = [], []
        for name, array in arrays.items():
            tensor = self._module.InferInput(name, list(array.shape), DTYPES[array.dtype.name])
            if name in places:
                tensor.set_shared_memory("given", array.nbytes, places[name])
            else:
                tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        for name, place in wanted.items():
            output = self._module.InferRequestedOutput(name)
            if place is not None:
                output.set_shared_memory("wanted", place[1], place[0])
            outputs.append(output)
        return {"inputs": inputs, "outputs": outputs}

    def infer(
        self, model: str, arrays: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], **more: Any
    ) -> dict[str, np.ndarray]:
        """From region to region: inputs that are no text lie one behind another, outputs likewise.

        wanted: arrays of the outputs' types and shapes.  more: of the call.
        """
        raw, places = _laid_out({name: array for name, array in arrays.items() if array.dtype != object})
        self.given.write(raw)
        _, found = _laid_out(wanted)
        asked = self.asked(arrays, places, {name: (found[name], wanted[name].nbytes) for name in wanted})
        self.client.infer(model, **asked, **more)
        memory = self.wanted.read(REGION_BYTES)
        return {
            name: np.frombuffer(memory, like.dtype, like.size, found[name]).reshape(like.shape)
            for name, like in wanted.items()
        }

    def infer_at_once(self, model: str, calls: list[dict[str, Any]]) -> list[Any]:
        """Over gRPC, all under way at one time: results in their order.  calls: arguments."""
        answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
        for at, call in enumerate(calls):

            def came(result: Any, error: Any, at: int = at) -> None:
                answers.put((at, result, error))

            self.client.async_infer(model, callback=came, **call)
        found = sorted((answers.get(timeout=90) for _ in calls), key=lambda each: each[0])
        assert [error for _, _, error in found if error is not None] == []
        return [result for _, result, _ in found]


def _laid_out(arrays: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, int]]:
    raw, places = b"", {}
    for name, array in arrays.items():
        raw += bytes(-len(raw) % 256)
        places[name] = len(raw)
        raw += array.tobytes()
    return raw, places


def gpu_bytes() -> tuple[int, int]:
    """(in use, all) of the first GPU."""
    nvml = open_nvml()
    memory = None if nvml is None else nvml.memory("0")
    assert memory is not None
    return memory.total - memory.free, memory.total
