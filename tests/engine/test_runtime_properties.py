"""Whatever happens in whatever order: every request is answered exactly once and batches keep their bounds."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests_engine_model import MS, Model

from tisfast.config.scheduler import QueuePolicy
from tisfast.engine.testing import cancel


class Scheduling(RuleBasedStateMachine):
    @initialize(
        instances=st.integers(1, 3),
        changes=st.fixed_dictionaries(
            {
                "dynamic": st.booleans(),
                "max_batch_size": st.integers(1, 6),
                "preserve_ordering": st.booleans(),
                "max_queue_delay_ns": st.sampled_from([0, 2 * MS]),
                "max_queue_size": st.sampled_from([0, 5]),
                "default_timeout_us": st.sampled_from([0, 3000]),
                "timeout_action": st.sampled_from(["REJECT", "DELAY"]),
                "allow_timeout_override": st.booleans(),
                "priority_levels": st.sampled_from([0, 1, 3]),
            }
        ),
    )
    def build(self, instances, changes):
        self.changes = changes
        changes["default_priority_level"] = min(2, changes["priority_levels"])
        if changes["priority_levels"] > 1:
            changes["preserve_ordering"] = False  # as a configuration must
        own = QueuePolicy(max_queue_size=3, default_timeout_us=2000, allow_timeout_override=True)
        self.policies = {1: own} if changes["priority_levels"] else {}
        self.m = Model(instances=instances, priority_policies=tuple(self.policies.items()), **changes)
        self.sent, self.names, self.levels = [], [], {}

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
        self.levels[self.names[-1]] = self.level(priority)

    def level(self, priority):
        levels = self.changes["priority_levels"]
        return priority if 1 <= priority <= levels else self.changes["default_priority_level"]

    @rule(which=st.integers(0, 2), status=st.sampled_from([0, 0, 0, 2]))
    def execute(self, which, status):
        link = self.m.links[which % len(self.m.links)]
        if link.dispatched:
            link.execute(took_ns=MS // 2, status=status)

    @rule(which=st.integers(0, 2))
    def die(self, which):
        link = self.m.links[which % len(self.m.links)]
        if link.up:
            link.die()

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

    def teardown(self):
        if not hasattr(self, "m"):
            return
        for link in self.m.links:
            if not link.up:
                link.revive()
        for _ in range(10 * len(self.sent) + 10):  # everything drains: nothing starves, nothing is lost
            self.m.wait(5 * MS)
            for link in self.m.links:
                if link.dispatched:
                    link.execute()
        names = [name for name, _, _ in self.m.calls]
        assert sorted(names) == sorted(self.names)
        if self.changes["preserve_ordering"]:
            assert names == self.names


TestScheduling = Scheduling.TestCase
TestScheduling.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
