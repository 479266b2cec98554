"""A model runtime with fake links: what the engine's tests drive."""

from __future__ import annotations

from tisfast.config.scheduler_settings import QueuePolicy, SchedulerSettings
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, FakeSink, make_input, submit
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

MS = 1_000_000


POLICY = ("max_queue_size", "default_timeout_us", "allow_timeout_override", "timeout_action")


def settings(**changes):
    """SchedulerSettings; those of the default queue policy are named among the others."""
    policy = QueuePolicy(**{name: changes.pop(name) for name in POLICY if name in changes})
    return SchedulerSettings(**{"max_batch_size": 8, "dynamic": True, "queue_policy": policy} | changes)


class Model:
    """A runtime with fake links and one list of answers."""

    def __init__(self, instances=1, decoupled=False, strategy=None, **changes):
        self.clock = FakeClock()
        scheduler = settings(**changes)
        inputs, outputs = [("I", 11, (4,), False, False)], [("O", 11, (4,))]
        self.signature = ModelSignature("m", "1", scheduler.max_batch_size, decoupled, inputs, outputs)
        arena = Arena("test", 1 << 20, 1 << 20)
        self.runtime = ModelRuntime(self.signature, arena, scheduler, self.clock, {}, strategy)
        self.links = [FakeLink(f"m_0_{i}", self.runtime, self.clock) for i in range(instances)]
        self.calls = []
        for link in self.links:
            self.runtime.add_link(link)
        self.due = 0
        self.runtime.timer_changed = self.arm
        self.runtime.set_state(True, "")

    def send(self, *ids, **what):
        return [submit(self.runtime, make_input(self.signature, i, **what), FakeSink(self.calls)) for i in ids]

    def wait(self, ns):
        """Time passes, and the timer looks when it was told to, as `processes.timer` does."""
        self.clock.now += ns
        if 0 < self.due <= self.clock.now:
            if 0 < self.runtime.next_timer_ns() <= self.clock.now:
                self.runtime.on_timer()
            self.arm()

    def arm(self):
        self.due = self.runtime.next_timer_ns()

    @property
    def answered(self):
        return [i for i, status, _ in self.calls if status == 0]
