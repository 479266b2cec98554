"""Models that call each other, with fake instances: what the tests of calls drive."""

from __future__ import annotations

import struct
from itertools import count

from tests.engine.helpers import settings
from tisfast.engine.registry import Registry
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, StreamSink, place_input, submit
from tisfast.engine.testing_calls import FakePort, calls_of
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

FP32, NOBODY = 11, (1 << 64) - 1
ANY_NUMBER, WAITS = 8, 16
FROM_REQUEST, FROM_CALL, FROM_ANSWER = 0, 1, 2
FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 8)


def record(
    model: str,
    tensors: list[tuple[str, tuple[int, ...], tuple[int, int, int, int]]],
    *,
    flags: int = WAITS,
    parent: int = 0,
    version: int = -1,
    requested: tuple[str, ...] = (),
    id: str = "",
    parameters: bytes = b"",
    correlation: int | str = 0,
    timeout: int = 0,
    trace: int = NOBODY,
) -> bytes:
    """A call record (workers/WIRE.md).  tensors: name, shape and (source, owner, place, bytes) of FP32 inputs."""
    name = model.encode()
    head = struct.pack("<HHIq", len(name), len(requested), 0, version) + name
    head += b"".join(struct.pack("<H", len(each.encode())) + each.encode() for each in requested)
    signature = padded(head)
    for tensor, shape, _ in tensors:
        raw = tensor.encode()
        signature += struct.pack(f"<BBHI{len(shape)}q", FP32, len(shape), len(raw), 0, *shape) + padded(raw)
    text = correlation.encode() if isinstance(correlation, str) else b""
    fixed = struct.pack(
        "<IHHQQQQIIII", len(signature), len(tensors), flags | (4 if text else 0), timeout, 0 if text else correlation,
        parent, trace, len(id.encode()), len(parameters), len(text), 0,
    )  # fmt: skip
    places = b"".join(struct.pack("<QQQQ", *place) for *_, place in tensors)
    return fixed + signature + places + id.encode() + parameters + text


class Instance:
    """A fake instance and the calls that it makes."""

    def __init__(self, model: Model, name: str) -> None:
        self.model = model
        self.link = FakeLink(name, model.runtime, model.world.clock)
        self.output = Arena(name, 1 << 22, 1 << 22)
        self.port = FakePort(self.link, model.runtime.arena)
        self.begin()

    def begin(self) -> None:
        """A worker begins."""
        self.calls = calls_of(self.link, self.model.runtime, self.port, self.model.world.registry)


class Model:
    """One model version with its instances."""

    def __init__(self, world: World, name: str, instances: int, **options: object) -> None:
        self.world = world
        decoupled = bool(options.pop("decoupled", False))
        scheduler = settings(**{"dynamic": False, "max_batch_size": 0, **options})
        inputs, outputs = [("I", FP32, (4,), False, False)], [("O", FP32, (4,))]
        signature = ModelSignature(name, "1", scheduler.max_batch_size, decoupled, inputs, outputs)
        self.runtime = ModelRuntime(signature, Arena(name, 1 << 22, 1 << 22), scheduler, world.clock, {})
        self.instances = [Instance(self, f"{name}_0_{i}") for i in range(instances)]
        for instance in self.instances:
            self.runtime.add_link(instance.link)
        self.runtime.set_state(True, "")
        world.registry.add(self.runtime)


class World:
    """Models by name, and what clients were told."""

    def __init__(self, **instances: int) -> None:
        self.clock = FakeClock()
        self.registry = Registry()
        self.models = {name: Model(self, name, number) for name, number in instances.items()}
        self.told: list = []
        self._names = count()

    def ask(self, model: str):
        """A client's request; its InferRequest."""
        runtime = self.models[model].runtime
        shape = (1, 4) if runtime.signature.max_batch_size else (4,)
        request = place_input(runtime, f"r{next(self._names)}", [(0, FP32, shape, FLOATS)])
        return submit(runtime, request, StreamSink(self.told))
