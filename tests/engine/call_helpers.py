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

FP32 = 11
ANY_NUMBER = 8
FROM_REQUEST, FROM_CALL, FROM_ANSWER = 0, 1, 2
FLOATS = struct.pack("<4f", 1, 2, 3, 4)


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
