"""Whatever a custom strategy says, and whenever: no batch over its limits, nobody lost or starved."""

from __future__ import annotations

import struct

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine.helpers import MS, Model
from tisfast.engine.batching_strategy import compile_strategy
from tisfast.engine.testing import FakeSink, cancel, place_input, submit

STRATEGIES = {
    "volume": "MOST = 12\n\ndef begin(r):\n    return r.size * r.shapes['I'][-1]\n\ndef include(total, r):\n"
    "    total += r.size * r.shapes['I'][-1]\n    return total if total <= MOST else None",
    "pairs": "def begin(r):\n    return 1\n\ndef include(n, r):\n    return n + 1 if n < 2 else None",
    "nobody": "def include(n, r):\n    return None",
    "everybody": "def include(n, r):\n    return n",
    "raises": "def include(n, r):\n    return 1 // (r.shapes['I'][-1] - 2)",
    "begins badly": "def begin(r):\n    return 1 // 0\n\ndef include(n, r):\n    return r.size",
}
MOST_BATCH = 6


def volume(batch):
    return sum(request.input.batch * elements_of(request) for request in batch)


def elements_of(request):
    return int(request.input.id.partition(" of ")[2])


class Strategies(RuleBasedStateMachine):
    @initialize(
        which=st.sampled_from(sorted(STRATEGIES)),
        instances=st.integers(1, 2),
        delay_ns=st.sampled_from([0, 2 * MS]),
        preferred=st.sampled_from([(), (4,), (2, 6)]),
    )
    def build(self, which, instances, delay_ns, preferred):
        self.which, self.sent = which, []
        strategy = compile_strategy(STRATEGIES[which], "s.py")
        self.failures = []
        strategy.failed = self.failures.append
        self.m = Model(
            instances, strategy=strategy, max_batch_size=MOST_BATCH, max_queue_delay_ns=delay_ns,
            preferred_batch_sizes=preferred,
        )  # fmt: skip

    @rule(size=st.integers(1, MOST_BATCH), elements=st.integers(1, 5))
    def send(self, size, elements):
        id = f"{len(self.sent)} of {elements}"
        data = struct.pack(f"<{size * elements}f", *range(size * elements))
        request = place_input(self.m.runtime, id, [(0, 11, (size, elements), data)], batch=size)
        self.sent.append(submit(self.m.runtime, request, FakeSink(self.m.calls)))

    @rule(which=st.integers(0, 1), fails=st.booleans())
    def execute(self, which, fails):
        link = self.m.links[which % len(self.m.links)]
        if link.dispatched:
            link.execute(took_ns=MS // 2, status=2 if fails else 0)

    @rule(which=st.integers(0, 100))
    def cancel(self, which):
        if self.sent:
            cancel(self.m.runtime, self.sent[which % len(self.sent)])

    @rule(ns=st.sampled_from([MS // 4, 3 * MS]))
    def wait(self, ns):
        self.m.wait(ns)

    @property
    def links(self):
        return self.m.links if hasattr(self, "m") else ()

    @invariant()
    def batches_keep_their_limits(self):
        for batch in [batch for link in self.links for batch in link.dispatched]:
            assert sum(request.input.batch for request in batch) <= MOST_BATCH
            if self.which == "volume":
                assert len(batch) == 1 or volume(batch) <= 12
            elif self.which == "pairs":
                assert len(batch) <= 2
            elif self.which == "nobody":
                assert len(batch) == 1

    @invariant()
    def nobody_overtakes_within_an_instance(self):
        for link in self.links:
            # What another instance had not begun may come here behind what is executed: that one's execution was long.
            batches = link.dispatched if len(self.links) == 1 else link.dispatched[link.begun :]
            numbers = [int(request.input.id.split()[0]) for batch in batches for request in batch]
            assert numbers == sorted(numbers)

    def teardown(self):
        """Time passes and everybody executes: all are answered, once."""
        if not hasattr(self, "m"):
            return
        for _ in range(3 * len(self.sent) + 1):
            self.m.wait(5 * MS)
            for link in self.m.links:
                while link.dispatched:
                    link.execute(took_ns=MS // 2)
        ids = [id for id, *_ in self.m.calls]
        assert len(ids) == len(self.sent) == len(set(ids))
        assert all(isinstance(failure, ZeroDivisionError) for failure in self.failures)


Strategies.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
TestStrategies = Strategies.TestCase
