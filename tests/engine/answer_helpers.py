"""Requests with tensors, and answers with tensors, for the tests of the cache."""

from __future__ import annotations

import struct

from tests.engine.helpers import settings
from tests.wire.helpers import answer as read_answer
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, StreamSink, place_input, submit
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

FP32 = 11


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def answered_with(data):
    """What a model that answers with these bytes does with an input."""
    out = Arena("out", 1 << 26, 1 << 25)
    return lambda request: read_answer(request, [(0, FP32, [len(data) // 4], data)], of=out)


class Order:
    """What threads are to do, when the test says so (`work`), unless it was cancelled; see `beside` of a runtime."""

    def __init__(self, orders, steps, done, seconds):
        self._orders, self.steps, self.done, self.seconds = orders, steps, done, seconds

    def cancel(self):
        self._orders.remove(self)

    def work(self):
        failure = ()
        for _, carry_out, _ in self.steps:
            failure = failure or carry_out()
        self.done(failure)


class Orders(list):
    """The orders that wait, in place of `beside`."""

    def __call__(self, steps, kept, done, seconds):
        self.append(Order(self, steps, done, seconds))
        return self[-1]

    def work(self, at=0):
        """Carry out one of them."""
        self.pop(at).work()


class CachedModel:
    """A runtime on a clock of the test's, whose answers may be kept."""

    def __init__(self, name="m", cache=None, **changes):
        self.clock = FakeClock()
        scheduler = settings(**{"max_batch_size": 0, "dynamic": False, **changes})
        self.signature = ModelSignature(
            name, "1", scheduler.max_batch_size, False, [("I", FP32, (-1,), False, False)], [("O", FP32, (-1,))]
        )
        self.runtime = ModelRuntime(
            self.signature, Arena("in", 1 << 23, 1 << 22), scheduler, self.clock, {"name": name, "backend": "python"}
        )
        self.runtime.cache = cache
        self.link = FakeLink(f"{name}_0", self.runtime, self.clock)
        self.runtime.add_link(self.link)
        self.runtime.set_state(True, "")
        self.calls = []

    def ask(self, data, id="", **more):
        """Submit a request for these bytes; returns it."""
        made = place_input(self.runtime, id, [(0, FP32, (len(data) // 4,), data)], **more)
        return submit(self.runtime, made, StreamSink(self.calls))

    def infer(self, data, given=None, id="", took_ns=1000, status=0):
        """Ask, execute if need be, and return what came: bytes, or the error's text."""
        self.ask(data, id)
        if self.link.dispatched:
            self.link.execute(took_ns, status, answered_with(data if given is None else given))
        _, status, what, final = self.calls.pop()
        assert final and not self.calls
        return what[0][3] if status == 0 else what

    @property
    def counts(self):
        stats = self.runtime.stats.inference_stats()
        found = {name: stats[name]["count"] for name in ("success", "fail", "cache_hit", "cache_miss", "queue")}
        return {**found, "executed": self.runtime.stats.execution_count}
