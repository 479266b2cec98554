"""A registry of models without workers behind them, heads to ask it with, and a loop to wait on."""

from __future__ import annotations

from tests.loops import fresh_loop
from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.engine.registry import Registry
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, FakeSink, make_input, submit
from tisfast.native.memory import Arena
from tisfast.wire import head
from tisfast.wire.signature import ModelSignature

BY_NAME = (
    ". You unregistered all regions, so you also hear of other clients' memory, as long as this is so. To hear only of "
    "yours, unregister your regions by name"
)
"""Behind what is open of clients' GPU memory, for who unregisters all of it."""


class Served:
    """One model version with one instance that executes when told to."""

    def __init__(self, name="m", version="1", max_batch=0, config=None):
        inputs = [("I", 11, (-1, 3), False, False), ("S", 13, (1,), True, False)]
        signature = ModelSignature(name, version, max_batch, False, inputs, [("O", 8, (4,))])
        self.clock = FakeClock()
        self.runtime = ModelRuntime(
            signature,
            Arena("t", 1 << 20, 1 << 19),
            SchedulerSettings(max_batch_size=max_batch, dynamic=max_batch > 0),
            self.clock,
            config or {"name": name, "backend": "python", "platform": ""},
        )
        self.link = FakeLink(f"{name}_0_0", self.runtime, self.clock)
        self.runtime.add_link(self.link)
        self.runtime.set_state(True, "")

    def infer(self, batch=1, status=0):
        submit(self.runtime, make_input(self.runtime.signature, batch=batch), FakeSink([]))
        self.link.execute(took_ns=5000, status=status)


def registry(*served):
    found = Registry()
    for one in served:
        found.add(one.runtime)
    found.set_live(True)
    return found


def ask(method, path):
    return head.parse(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def registered(call, *values):
    """Wait for what `call`, on a loop, gives."""

    async def work():
        return await call(*values)

    with fresh_loop() as loop:
        return loop.run_until_complete(work())


def logged(caplog):
    """What the server has logged.  asyncio logs at any moment what tests before have left, when it becomes garbage."""
    return [each.getMessage() for each in caplog.records if each.name.startswith("tisfast.")]
