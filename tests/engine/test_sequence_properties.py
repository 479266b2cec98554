"""Whatever happens in whatever order: sequences keep slots and order, and each request is answered once."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.helpers import MS
from tests.engine.sequence_helpers import END, START, SequenceModel
from tisfast.engine.testing import batch_due, cancel, free_slots, queued_places, sequences, waiting_new

IDS = st.integers(1, 7)
INSTANCES = st.integers(0, 2)
LENGTHS = st.sampled_from([MS // 20, MS // 2, 20 * MS])


class Sequences(RuleBasedStateMachine):
    """Clients that send what they like, over instances that come and go."""

    @initialize(
        instances=st.integers(1, 3),
        lags=st.booleans(),
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
    def build(self, instances, lags, changes):
        if not changes["oldest"]:
            changes["max_batch_size"] = changes["slots"]  # the direct strategy has a slot for each place of a batch
        self.m = SequenceModel(instances=instances, **changes)
        self.changes = changes
        self.sent, self.life_of, self.lives = {}, {}, {}
        self.places, self.claimed = {}, set()
        self.hung, self.dead = set(), set()
        for link in self.m.links:
            link.slots, link.lags = changes["slots"] + 1, lags
        self.executed = []

    @rule(sequence=IDS, flags=st.sampled_from([0, 0, START, END, START | END]), timeout=st.sampled_from([0, 0, 3000]))
    def ask(self, sequence, flags, timeout):
        if sequence not in sequences(self.m.runtime):
            self.lives[sequence] = self.lives.get(sequence, 0) + 1
        request = self.m.ask(sequence, flags, timeout_us=timeout, shape_key=b"")
        name = f"{sequence}.{self.m.numbers[sequence]}"
        self.sent[name], self.life_of[name] = request, (sequence, self.lives[sequence])

    @rule(first=IDS, count=st.integers(2, 7), flags=st.sampled_from([START, START | END, 0]))
    def burst(self, first, count, flags):
        for at in range(count):
            self.ask((first + at) % 7 + 1, flags, 0)

    @rule(which=INSTANCES, status=st.sampled_from([0, 0, 0, 2]), took_ns=LENGTHS)
    def execute(self, which, status, took_ns):
        link = self.m.links[which % len(self.m.links)]
        if link.dispatched and link not in self.hung:
            self.executed.append(link.ids()[0])
            link.execute(took_ns=took_ns, status=status)

    @rule(which=INSTANCES)
    def begin(self, which):
        """The worker is quicker than the server's recall."""
        self.m.links[which % len(self.m.links)].begin()

    @rule(which=INSTANCES)
    def pass_over(self, which):
        self.m.links[which % len(self.m.links)].pass_over()

    @rule(which=INSTANCES, what=st.sampled_from(["hang", "leave", "die"]), untaken=st.integers(0, 1))
    def trouble(self, which, what, untaken):
        """It answers nothing any more, until it is killed; gets no more work; or dies."""
        link = self.m.links[which % len(self.m.links)]
        if what == "hang" and link.dispatched:
            self.hung.add(link)
        elif what == "leave" and link.up:
            self.m.runtime.retire_link(link)
        elif what == "die":
            self.die(link, untaken)

    def die(self, link, untaken=0):
        if link not in self.dead:
            # A claim that was followed by nothing: the sequence begins elsewhere.
            gone = {self.life_of[name] for batch in link.ids() for name in batch}
            self.claimed -= gone
            self.places = {life: place for life, place in self.places.items() if life not in gone}
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
    def a_sequence_that_has_begun_never_changes_its_slot(self):
        live = {(id, self.lives[id]): place for id, place in sequences(self.m.runtime).items()}
        taken = [place for place in live.values() if place[0] is not None]
        assert len(set(taken)) == len(taken)
        begun = {self.life_of[name] for batch in self.executed for name in batch}
        for link in self.m.links:
            self.claimed |= {self.life_of[name] for batch in link.ids()[: link.begun] for name in batch}
        for life, place in live.items():
            before = self.places.get(life)
            if before is not None and life in begun | self.claimed:
                assert place == before, (life, before, place)
        self.places = {life: place for life, place in live.items() if life in begun | self.claimed}

    @invariant()
    @precondition(lambda self: hasattr(self, "m"))
    def no_instance_is_idle_while_a_request_waits_that_it_could_execute(self):
        runtime, free = self.m.runtime, free_slots(self.m.runtime)
        waits_for_more = batch_due(runtime) > self.m.clock.now
        places = queued_places(runtime)
        busy = {None, *(link.instance for link in self.m.links if link.dispatched)}
        waiting = [name for name in waiting_new(runtime) if places[name] in busy]
        for link in self.m.links:
            if not link.up or link.dispatched or link.slots - link.ghosts < self.changes["slots"]:
                continue
            queued = [name for name, place in places.items() if place == link.instance]
            assert not queued or waits_for_more, (link.instance, queued)
            if free[link.instance] and not queued:
                assert not waiting, (link.instance, waiting)
                assert not self.new_ahead(), link.instance

    def new_ahead(self):
        """First requests of sequences that wait behind an execution."""
        executed = {self.life_of[name] for batch in self.executed for name in batch}
        return [
            name
            for link in self.m.links
            for batch in link.ids()[link.begun :]
            for name in batch
            if not executed & {self.life_of[name]} and not self.is_out_before(link, name)
        ]

    def is_out_before(self, link, name):
        return any(self.life_of[each] == self.life_of[name] for batch in link.ids()[: link.begun] for each in batch)

    @invariant()
    @precondition(lambda self: hasattr(self, "m"))
    def counters_agree(self):
        runtime = self.m.runtime
        assert runtime.stats.pending == runtime.queued
        assert runtime.inflight == sum(link.inflight for link in self.m.links)

    def teardown(self):
        if not hasattr(self, "m"):
            return
        self.recover()
        for _ in range(10 * len(self.sent) + 10):  # everything drains: idle slots are reclaimed, nothing starves
            self.m.wait(self.changes["idle_ns"])
            for link in self.m.links:
                link.pass_over()
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
