"""Whatever happens in whatever order: every request is answered exactly once and batches keep their bounds."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine.helpers import MS, Model
from tisfast.config.scheduler_settings import QueuePolicy
from tisfast.engine.testing import batch_due, cancel

LENGTHS = st.sampled_from([MS // 20, MS // 20, MS // 20, MS // 2, 20 * MS])


class Scheduling(RuleBasedStateMachine):
    @initialize(
        instances=st.sampled_from([1, 2, 2, 3]),
        spare=st.sampled_from([0, 1, 250]),
        lags=st.booleans(),
        changes=st.fixed_dictionaries(
            {
                "dynamic": st.booleans(),
                "max_batch_size": st.integers(1, 6),
                "preserve_ordering": st.booleans(),
                "max_queue_delay_ns": st.sampled_from([0, 2 * MS]),
                "max_queue_size": st.sampled_from([0, 0, 0, 5]),
                "default_timeout_us": st.sampled_from([0, 0, 0, 3000]),  # mostly none: with one nothing is handed ahead
                "timeout_action": st.sampled_from(["REJECT", "DELAY"]),
                "allow_timeout_override": st.booleans(),
                "priority_levels": st.sampled_from([0, 0, 0, 1, 3]),
            }
        ),
    )
    def build(self, instances, spare, lags, changes):
        self.changes = changes
        changes["default_priority_level"] = min(2, changes["priority_levels"])
        if changes["priority_levels"] > 1:
            changes["preserve_ordering"] = False  # as a configuration must
        own = QueuePolicy(max_queue_size=3, default_timeout_us=2000, allow_timeout_override=True)
        self.policies = {1: own} if changes["priority_levels"] else {}
        self.m = Model(instances=instances, priority_policies=tuple(self.policies.items()), **changes)
        self.sent, self.names, self.levels, self.refused = [], [], {}, set()
        self.hung, self.dead = set(), set()
        for link in self.m.links:
            link.slots, link.lags = self.most() + spare, lags

    @rule(count=st.integers(2, 8), batch=st.integers(1, 2))
    def burst(self, count, batch):
        for _ in range(count):
            self.send(batch, b"", 0, 0)

    @rule(
        batch=st.integers(1, 6),
        shape=st.sampled_from([b"", b"x"]),
        priority=st.sampled_from([0, 1, 2, 3, 9]),
        timeout_us=st.sampled_from([0, 500, 2500, 10**9]),
    )
    def send(self, batch, shape, priority, timeout_us):
        batch = min(batch, self.changes["max_batch_size"])
        self.names.append(f"r{len(self.sent)}")
        what = {"batch": batch, "shape_key": shape, "priority": priority, "timeout_us": timeout_us}
        self.sent += self.m.send(self.names[-1], **what)
        if self.sent[-1].done:
            self.refused.add(self.names[-1])  # at once, whatever the order of the others is
        self.levels[self.names[-1]] = self.level(priority)

    def most(self):
        """Requests of one batch."""
        return self.changes["max_batch_size"] if self.changes["dynamic"] else 1

    def level(self, priority):
        levels = self.changes["priority_levels"]
        return priority if 1 <= priority <= levels else self.changes["default_priority_level"]

    @rule(which=st.integers(0, 2), status=st.sampled_from([0, 0, 0, 2]), took_ns=LENGTHS, times=st.integers(1, 3))
    def execute(self, which, status, took_ns, times):
        link = self.m.links[which % len(self.m.links)]
        for _ in range(times):
            if link.dispatched and link not in self.hung:
                link.execute(took_ns=took_ns, status=status)

    @rule(which=st.integers(0, 2))
    def begin(self, which):
        """The worker is quicker than the server's recall."""
        self.m.links[which % len(self.m.links)].begin()

    @rule(which=st.integers(0, 2))
    def pass_over(self, which):
        self.m.links[which % len(self.m.links)].pass_over()

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
            link.die(taken=max(0, link.begun - untaken))
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

    @invariant()
    def batches_keep_their_bounds(self):
        if not hasattr(self, "m"):
            return
        for link in self.m.links:
            for batch in link.dispatched:
                assert sum(r.input.batch for r in batch) <= max(1, self.changes["max_batch_size"])
                assert len({r.input.shape_key for r in batch}) == 1
                assert self.changes["dynamic"] or len(batch) == 1
            assert link.inflight == sum(map(len, link.dispatched))

    @invariant()
    def batches_are_filled_by_priority(self):
        for link in self.m.links if hasattr(self, "m") else ():
            for batch in link.ids():
                levels = [self.levels[id] for id in batch]
                assert levels == sorted(levels)

    @invariant()
    def counters_agree(self):
        if hasattr(self, "m"):
            assert self.m.runtime.stats.pending == self.m.runtime.queued
            assert self.m.runtime.inflight == sum(link.inflight for link in self.m.links)

    @invariant()
    def no_instance_is_idle_while_a_request_waits_that_it_could_execute(self):
        if not hasattr(self, "m"):
            return
        idle = [
            link for link in self.m.links if link.up and not link.dispatched and link.slots - link.ghosts >= self.most()
        ]
        if not idle:
            return
        assert all(len(link.dispatched) <= link.begun for link in self.m.links)
        waits_for_more = self.changes["dynamic"] and batch_due(self.m.runtime) > self.m.clock.now
        assert self.m.runtime.queued == 0 or waits_for_more

    @invariant()
    def a_batch_is_waited_for_no_longer_than_is_said(self):
        if hasattr(self, "m") and self.changes["dynamic"]:
            longest = max(self.changes["max_queue_delay_ns"], MS)  # or for the clients that were just answered
            assert batch_due(self.m.runtime) <= self.m.clock.now + longest

    def teardown(self):
        if not hasattr(self, "m"):
            return
        self.recover()
        for _ in range(10 * len(self.sent) + 10):  # everything drains: nothing starves, nothing is lost
            self.m.wait(5 * MS)
            for link in self.m.links:
                link.pass_over()
                if link.dispatched:
                    link.execute()
        names = [name for name, _, _ in self.m.calls]
        assert sorted(names) == sorted(self.names)
        if self.changes["preserve_ordering"]:
            assert [name for name in names if name not in self.refused] == [
                name for name in self.names if name not in self.refused
            ]


TestScheduling = Scheduling.TestCase
TestScheduling.settings = hypothesis_settings(max_examples=250, stateful_step_count=40, deadline=None)
