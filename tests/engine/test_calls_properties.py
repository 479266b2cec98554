"""Whatever models, clients and workers do: every call has one end, nobody waits for ever, and no memory is lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.call_helpers import ANY_NUMBER, FROM_CALL, Model, World
from tests.wire.call_record_helpers import NOBODY, WAITS, record
from tisfast.engine.testing import cancel as client_leaves
from tisfast.engine.testing_calls import call, cancel, close, done, flush

PICK = st.integers(0, 7)


class Talking(RuleBasedStateMachine):
    @initialize(a=st.integers(1, 2), b=st.integers(1, 2), c=st.integers(1, 2), streams=st.booleans())
    def build(self, a, b, c, streams):
        self.world = World(a=a, b=b, c=c)
        if streams:
            self.world.models["s"] = Model(self.world, "s", 1, decoupled=True)
        self.names = list(self.world.models)
        self.instances = [each for model in self.world.models.values() for each in model.instances]
        self.asked = []
        self.made = {}  # number: instance
        self.over = set()  # numbers that were forgotten, or whose instance died
        for model in range(len(self.names)):
            self.ask(model)

    def instance(self, at):
        return self.instances[at % len(self.instances)]

    def blocked(self, instance):
        return any(number in self.waiting(instance) for number in self.made)

    def waiting(self, instance):
        ended = {sent[0] for sent in instance.port.sent if sent[3]}
        return [n for n, (who, waits) in self.made.items() if who is instance and waits and n not in ended | self.over]

    @rule(model=PICK)
    def ask(self, model):
        name = self.names[model % len(self.names)]
        self.asked.append((name, self.world.ask(name)))

    @rule(at=PICK, model=PICK, waits=st.booleans(), parent=st.sampled_from([0, 0, NOBODY]))
    def call(self, at, model, waits, parent):
        instance, name = self.instance(at), self.names[model % len(self.names)]
        if not instance.link.up or not instance.link.dispatched or instance.model.runtime.signature.decoupled:
            return
        number = len(self.made) + 1
        self.made[number] = (instance, waits)
        flags = (WAITS if waits else 0) | (ANY_NUMBER if name == "s" else 0)
        tensors = [("I", (4,), (FROM_CALL, 0, 0, 16))]
        call(instance.calls, number, instance.output, record(name, tensors, flags=flags, parent=parent))

    @rule(at=PICK, models=st.lists(PICK, min_size=1, max_size=4))
    def call_on(self, at, models):
        """A chain: whoever is called calls on."""
        for model in models:
            self.call(at, model, True, 0)
            at = self.instances.index(self.world.models[self.names[model % len(self.names)]].instances[0])

    @rule(at=PICK, status=st.sampled_from([0, 0, 0, 2]))
    def execute(self, at, status):
        link = self.instance(at).link
        if not link.dispatched or self.blocked(self.instance(at)):
            return
        if self.instance(at).model.runtime.signature.decoupled:
            link.execute_streams()
        else:
            link.execute(status=status)

    @rule(at=PICK, which=PICK, final=st.booleans())
    def respond(self, at, which, final):
        link = self.instance(at).link
        streams = [request for request in link.streams if not request.done]
        if streams:
            link.respond(streams[which % len(streams)], final=final)

    @rule(which=st.integers(0, 50))
    def leave(self, which):
        if self.asked:
            name, request = self.asked[which % len(self.asked)]
            client_leaves(self.world.models[name].runtime, request)

    @rule(which=st.integers(0, 50), forget=st.booleans())
    def cancel(self, which, forget):
        if self.made:
            number = 1 + which % len(self.made)
            instance = self.made[number][0]
            if number not in self.over:
                cancel(instance.calls, number, forget)
                if forget:
                    self.over.add(number)

    @rule(at=PICK)
    def die(self, at):
        instance = self.instance(at)
        if not instance.link.up:
            return
        self.over |= {number for number, (who, _) in self.made.items() if who is instance}
        close(instance.calls)
        instance.link.die()

    @rule(at=PICK)
    def revive(self, at):
        instance = self.instance(at)
        if not instance.link.up:
            instance.port.sent.clear()
            instance.begin()
            instance.link.revive()

    @rule(at=PICK, room=st.integers(0, 3))
    def take(self, at, room):
        instance = self.instance(at)
        instance.port.room = room
        if instance.link.up:
            flush(instance.calls)

    @precondition(lambda self: self.made)
    @rule(at=PICK)
    def let_go(self, at):
        instance = self.instance(at)
        for sent in instance.port.sent:
            if sent[4] and instance.link.up:
                done(instance.calls, sent[4])

    @invariant()
    def each_call_ends_once(self):
        for instance in getattr(self, "instances", ()):
            ends = Counter(sent[0] for sent in instance.port.sent if sent[3])
            assert all(count == 1 for count in ends.values())
            last = {sent[0]: sent[3] for sent in instance.port.sent}
            assert all(last[number] for number in ends), "nothing follows the end"

    def teardown(self):
        if not hasattr(self, "instances"):
            return
        for at in range(len(self.instances)):
            self.revive(at)
            self.instances[at].port.room = 1 << 30
            flush(self.instances[at].calls)
        while self.progress():
            pass
        assert all(request.done for _, request in self.asked), "somebody waits for ever"
        for instance in self.instances:
            assert not instance.link.dispatched
            for sent in instance.port.sent:
                done(instance.calls, sent[4])
            assert instance.calls.open_calls == instance.calls.held_answers == 0
        ended = {sent[0] for instance in self.instances for sent in instance.port.sent if sent[3]}
        assert set(self.made) == ended | self.over
        assert sum(1 for told in self.world.told if told[3]) == len(self.asked)
        self.asked.clear()
        for instance in self.instances:
            assert instance.output.used_blocks == 0 and instance.model.runtime.arena.used_blocks == 0

    def progress(self):
        moved = False
        for at, instance in enumerate(self.instances):
            if instance.link.dispatched and not self.blocked(instance):
                self.execute(at, 0)
                moved = True
            for request in [request for request in instance.link.streams if not request.done]:
                instance.link.respond(request, final=True)
                moved = True
        return moved


TestTalking = Talking.TestCase
TestTalking.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
