"""Whatever happens in whatever order: sequences keep slots and order, and each request is answered once."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests_engine_model import MS
from tests_engine_sequences import END, START, SequenceModel

from tisfast.engine.testing import cancel, sequences

IDS = st.integers(1, 7)
INSTANCES = st.integers(0, 1)


class Sequences(RuleBasedStateMachine):
    """Clients that send what they like, over instances that come and go."""

    @initialize(
        instances=st.integers(1, 2),
        changes=st.fixed_dictionaries(
            {
                "oldest": st.booleans(),
                "slots": st.integers(1, 3),
                "max_batch_size": st.integers(1, 4),
                "delay_ns": st.sampled_from([0, 2 * MS]),
                "minimum_slot_utilization": st.sampled_from([0.0, 0.5, 1.0]),
                "idle_ns": st.sampled_from([5 * MS, 1000 * MS]),
            }
        ),
    )
    def build(self, instances, changes):
        if not changes["oldest"]:
            changes["max_batch_size"] = changes["slots"]  # the direct strategy has a slot for each place of a batch
        self.m = SequenceModel(instances=instances, **changes)
        self.changes = changes
        self.sent, self.life_of, self.lives = {}, {}, {}
        self.places, self.may_move = {}, False
        self.executed = []

    @rule(sequence=IDS, flags=st.sampled_from([0, 0, START, END, START | END]), timeout=st.sampled_from([0, 0, 3000]))
    def ask(self, sequence, flags, timeout):
        self.may_move = bool(flags & START)  # an ended sequence of this id may be followed by another one
        if sequence not in sequences(self.m.runtime):
            self.lives[sequence] = self.lives.get(sequence, 0) + 1
        request = self.m.ask(sequence, flags, timeout_us=timeout, shape_key=b"")
        name = f"{sequence}.{self.m.numbers[sequence]}"
        self.sent[name], self.life_of[name] = request, (sequence, self.lives[sequence])

    @rule(which=INSTANCES, status=st.sampled_from([0, 0, 0, 2]))
    def execute(self, which, status):
        link = self.m.links[which % len(self.m.links)]
        if link.dispatched:
            self.executed.append(link.ids()[0])
            link.execute(took_ns=MS // 2, status=status)

    @rule(which=INSTANCES, took_first=st.booleans())
    def die(self, which, took_first):
        link = self.m.links[which % len(self.m.links)]
        if link.up:
            self.may_move = True  # one of which nothing was taken begins elsewhere
            if not took_first:
                link.dispatched.insert(0, [])
            link.die()

    @rule(which=INSTANCES)
    def revive(self, which):
        link = self.m.links[which % len(self.m.links)]
        if not link.up:
            link.revive()

    @rule(which=st.integers(0, 1000))
    def cancel(self, which):
        if self.sent:
            cancel(self.m.runtime, list(self.sent.values())[which % len(self.sent)])

    @rule(ms=st.integers(0, 4))
    def wait(self, ms):
        self.m.wait(ms * MS)

    @invariant()
    @precondition(lambda self: hasattr(self, "m"))
    def batches_are_sound(self):
        for link in self.m.links:
            for batch in link.places():
                slots = [slot for _, slot in batch]
                lives = [self.life_of[name] for name, _ in batch]
                assert all(slot < self.changes["slots"] for slot in slots)
                assert len(set(slots)) == len(slots)
                assert len(set(lives)) == len(lives)
                assert self.changes["oldest"] or slots == sorted(slots)
                assert len(batch) <= self.changes["max_batch_size"]
            assert link.inflight == sum(map(len, link.dispatched))

    @invariant()
    @precondition(lambda self: hasattr(self, "m"))
    def a_sequence_never_changes_its_slot_while_it_lives(self):
        live = sequences(self.m.runtime)
        taken = [place for place in live.values() if place[0] is not None]
        assert len(set(taken)) == len(taken)
        for id, place in live.items():
            before = self.places.get(id)
            if before is not None and before[0] is not None and place != before:
                assert self.may_move, (id, before, place)
        self.places, self.may_move = live, False

    @invariant()
    @precondition(lambda self: hasattr(self, "m"))
    def counters_agree(self):
        runtime = self.m.runtime
        assert runtime.stats.pending == runtime.queued
        assert runtime.inflight == sum(link.inflight for link in self.m.links)

    def teardown(self):
        if not hasattr(self, "m"):
            return
        for link in self.m.links:
            if not link.up:
                link.revive()
        for _ in range(10 * len(self.sent) + 10):  # everything drains: idle slots are reclaimed, nothing starves
            self.m.wait(self.changes["idle_ns"])
            for link in self.m.links:
                if link.dispatched:
                    self.executed.append(link.ids()[0])
                    link.execute()
        names = [name for name, _, _ in self.m.calls]
        assert sorted(names) == sorted(self.sent), "each is answered exactly once"
        assert self.m.runtime.queued == 0
        assert sequences(self.m.runtime) == {}
        self.order_within_sequences()

    def order_within_sequences(self):
        last = {}
        for batch in self.executed:
            for name in batch:
                life, number = self.life_of[name], int(name.split(".")[1])
                assert last.get(life, -1) < number, self.executed
                last[life] = number


TestSequences = Sequences.TestCase
TestSequences.settings = hypothesis_settings(max_examples=200, stateful_step_count=40, deadline=None)
