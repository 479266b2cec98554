"""Whatever decoupled models, instances and clients do: every request has one final answer, and it is the last."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine.helpers import MS, Model
from tisfast.engine.testing import StreamSink, batch_due, cancel, make_input, submit

LENGTHS = st.sampled_from([MS // 20, MS // 20, MS // 2, 20 * MS])


class Streaming(RuleBasedStateMachine):
    @initialize(
        instances=st.integers(1, 3),
        changes=st.fixed_dictionaries(
            {
                "dynamic": st.booleans(),
                "max_batch_size": st.integers(1, 4),
                "preserve_ordering": st.booleans(),
                "max_queue_size": st.sampled_from([0, 0, 0, 5]),
                "default_timeout_us": st.sampled_from([0, 0, 0, 3000]),
            }
        ),
    )
    def build(self, instances, changes):
        self.m = Model(instances=instances, decoupled=True, **changes)
        self.ordered, self.dynamic = changes["preserve_ordering"], changes["dynamic"]
        self.sent, self.refused = [], set()
        self.hung, self.dead = set(), set()

    @rule(count=st.integers(1, 4))
    def send(self, count):
        for _ in range(count):
            name = f"r{len(self.sent)}"
            self.sent.append(submit(self.m.runtime, make_input(self.m.signature, name), StreamSink(self.m.calls)))
            if self.sent[-1].done:
                self.refused.add(name)  # at once, whatever the order of the others is

    @rule(which=st.integers(0, 2), took_ns=LENGTHS, times=st.integers(1, 3))
    def execute(self, which, took_ns, times):
        link = self.m.links[which % len(self.m.links)]
        for _ in range(times):
            if link.dispatched and link not in self.hung:
                link.execute_streams(took_ns=took_ns)

    @rule(which=st.integers(0, 2))
    def begin(self, which):
        """The worker is quicker than the server's recall."""
        self.m.links[which % len(self.m.links)].begin()

    @rule(which=st.integers(0, 2), at=st.integers(0, 50), status=st.sampled_from([0, 0, 2, 8]), final=st.booleans())
    def respond(self, which, at, status, final):
        link = self.m.links[which % len(self.m.links)]
        held = [r for r in self.taken(link) if not r.done]
        if held:
            link.respond(held[at % len(held)], status=status, final=final)

    @rule(which=st.integers(0, 2), what=st.sampled_from(["hang", "leave", "die"]), untaken=st.integers(0, 1))
    def trouble(self, which, what, untaken):
        """It answers nothing any more, until it is killed; gets no more work; or dies."""
        link = self.m.links[which % len(self.m.links)]
        if what == "hang" and link.dispatched:
            self.hung.add(link)
        elif what == "leave" and link.up:
            self.m.runtime.retire_link(link)
            assert len(link.dispatched) <= link.begun
        elif what == "die":
            self.die(link, untaken)

    def die(self, link, untaken=0):
        if link not in self.dead:
            before = {id(r) for r in self.taken(link)}
            link.dispatched = [[r for r in batch if not r.done] for batch in link.dispatched]
            link.die(taken=link.begun)
            assert all(r.done for r in self.sent if id(r) in before)
            self.hung.discard(link)
            self.dead.add(link)

    @rule()
    def recover(self):
        """Whoever is in trouble is replaced."""
        for link in self.m.links:
            if not link.up or link in self.hung:
                self.die(link)
                self.dead.remove(link)
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
        """What the worker has: streams, and what it has begun."""
        return link.streams + [request for batch in link.dispatched[: link.begun] for request in batch]

    @invariant()
    def no_instance_is_idle_while_a_request_waits_that_it_could_execute(self):
        if not hasattr(self, "m") or all(link.dispatched or not link.up for link in self.m.links):
            return
        assert all(len(link.dispatched) <= link.begun for link in self.m.links)
        assert self.m.runtime.queued == 0 or self.dynamic and batch_due(self.m.runtime) > self.m.clock.now

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
        self.recover()
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
            finals = [name for name in finals if name not in self.refused]
            assert finals == [f"r{i}" for i in range(len(self.sent)) if f"r{i}" not in self.refused]
            calls = [call for call in self.m.calls if call[0] not in self.refused]
            assert [name for name, _ in groupby(call[0] for call in calls)] == finals


TestStreaming = Streaming.TestCase
TestStreaming.settings = hypothesis_settings(max_examples=150, stateful_step_count=50, deadline=None)
