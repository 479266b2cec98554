"""Whatever decoupled models, instances and clients do: every request has one final answer, and it is the last."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests_engine_model import MS, Model

from tisfast.engine.testing import StreamReply, cancel, make_input, submit


class Streaming(RuleBasedStateMachine):
    @initialize(
        instances=st.integers(1, 3),
        changes=st.fixed_dictionaries(
            {
                "dynamic": st.booleans(),
                "max_batch_size": st.integers(1, 4),
                "preserve_ordering": st.booleans(),
                "max_queue_size": st.sampled_from([0, 5]),
                "default_timeout_us": st.sampled_from([0, 3000]),
            }
        ),
    )
    def build(self, instances, changes):
        self.m = Model(instances=instances, decoupled=True, **changes)
        self.ordered = changes["preserve_ordering"]
        self.sent = []

    @rule(count=st.integers(1, 4))
    def send(self, count):
        for _ in range(count):
            name = f"r{len(self.sent)}"
            self.sent.append(submit(self.m.runtime, make_input(self.m.signature, name), StreamReply(self.m.calls)))

    @rule(which=st.integers(0, 2))
    def execute(self, which):
        link = self.m.links[which % len(self.m.links)]
        if link.dispatched:
            link.execute_streams(took_ns=MS // 2)

    @rule(which=st.integers(0, 2), at=st.integers(0, 50), status=st.sampled_from([0, 0, 2, 8]), final=st.booleans())
    def respond(self, which, at, status, final):
        link = self.m.links[which % len(self.m.links)]
        held = [r for r in self.taken(link) if not r.done]
        if held:
            link.respond(held[at % len(held)], status=status, final=final)

    @rule(which=st.integers(0, 2))
    def die(self, which):
        link = self.m.links[which % len(self.m.links)]
        if link.up:
            before = {id(r) for r in self.taken(link)}
            link.dispatched = [[r for r in batch if not r.done] for batch in link.dispatched]
            link.die()
            assert all(r.done for r in self.sent if id(r) in before)

    @rule(which=st.integers(0, 2))
    def revive(self, which):
        link = self.m.links[which % len(self.m.links)]
        if not link.up:
            link.revive()

    @rule(which=st.integers(0, 1000))
    def cancel(self, which):
        if self.sent:
            cancel(self.m.runtime, self.sent[which % len(self.sent)])

    @rule(ms=st.integers(0, 4))
    def wait(self, ms):
        self.m.wait(ms * MS)

    @staticmethod
    def taken(link):
        """What the worker has: streams, and the batch that executes."""
        return link.streams + (link.dispatched[0] if link.dispatched else [])

    @invariant()
    def nothing_follows_a_final_answer(self):
        if not hasattr(self, "m"):
            return
        ended = set()
        for name, _, _, final in self.m.calls:
            assert name not in ended
            if final:
                ended.add(name)

    @invariant()
    def counters_agree(self):
        if not hasattr(self, "m"):
            return
        assert self.m.runtime.stats.pending == self.m.runtime.queued
        assert self.m.runtime.inflight == sum(link.inflight for link in self.m.links)

    def teardown(self):
        if not hasattr(self, "m"):
            return
        for link in self.m.links:
            if not link.up:
                link.revive()
        for _ in range(4 * len(self.sent) + 4):
            self.m.wait(5 * MS)
            for link in self.m.links:
                if link.dispatched:
                    link.execute_streams()
                for request in link.streams:
                    if not request.done:
                        link.respond(request, final=True)
        finals = [name for name, _, _, final in self.m.calls if final]
        assert Counter(finals) == Counter(f"r{i}" for i in range(len(self.sent)))
        if self.ordered:
            assert finals == [f"r{i}" for i in range(len(self.sent))]
            assert [name for name, _ in groupby(call[0] for call in self.m.calls)] == finals


TestStreaming = Streaming.TestCase
TestStreaming.settings = hypothesis_settings(max_examples=150, stateful_step_count=50, deadline=None)
