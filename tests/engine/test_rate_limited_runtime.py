"""Models that share resources: every scheduler's executions take them and give them back, whatever ends them."""

from __future__ import annotations

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine.helpers import MS, Model
from tisfast.config.rate_limits import Demand, RateLimit
from tisfast.engine.rate_limiter import RateLimiter
from tisfast.engine.testing import StreamSink, cancel, make_input, submit


class Shared:
    """Models on one limiter.  Each is given by its demands on R, its priority and what Model takes."""

    def __init__(self, *models, units=0):
        self.limiter = RateLimiter([("R", units, None)] if units else ())
        self.models = []
        for demand, priority, options in models:
            m = Model(**options)
            for link in m.links:
                m.runtime.remove_link(link)
            m.runtime.limit_by(self.limiter)
            for link in m.links:
                limit = RateLimit((Demand("R", demand),) if demand else (), priority)
                link.claim = self.limiter.register(link.instance, limit, 0, m.runtime.resume) if demand else None
                m.runtime.add_link(link)
            self.models.append(m)

    @property
    def taken(self):
        return sum(taken for *_, taken in self.limiter.resources())

    @property
    def running(self):
        return [bool(m.links[0].dispatched) for m in self.models]


PLAIN = (1, 0, {"dynamic": False})


def test_only_one_of_two_models_executes_at_a_time():
    shared = Shared(PLAIN, PLAIN)
    a, b = shared.models
    a.send("a1", "a2")
    b.send("b1")
    assert shared.running == [True, False]
    a.links[0].execute()
    assert shared.running == [False, True]
    b.links[0].execute()
    assert shared.running == [True, False]
    a.links[0].execute()
    assert (a.answered, b.answered, shared.taken) == (["a1", "a2"], ["b1"], 0)


def test_without_a_demand_nothing_changes():
    shared = Shared(PLAIN, (0, 0, {"dynamic": False}))
    a, b = shared.models
    a.send("a1")
    b.send("b1", "b2")
    assert shared.running == [True, True] and b.links[0].ids() == [["b1"], ["b2"]]  # the second is prefetched


def test_a_limited_instance_is_given_nothing_ahead():
    a = Shared(PLAIN).models[0]
    a.send("a1", "a2")
    assert a.links[0].ids() == [["a1"]] and a.runtime.queued == 1


def test_a_batch_that_waits_for_its_turn_grows():
    shared = Shared(PLAIN, (1, 0, {"max_batch_size": 8}))
    a, b = shared.models
    a.send("a1")
    b.send("b1", "b2", "b3")
    a.links[0].execute()
    assert b.links[0].ids() == [["b1", "b2", "b3"]]


def test_a_waiting_client_that_leaves_makes_room_for_others():
    shared = Shared((2, 0, {"dynamic": False}), (3, 0, {"dynamic": False}), (1, 0, {"dynamic": False}), units=3)
    a, b, c = shared.models
    a.send("a1")
    [waiting] = b.send("b1")
    c.send("c1")
    assert shared.running == [True, False, False]  # there is one unit left, which b waits for, too
    cancel(b.runtime, waiting)
    assert shared.running == [True, False, True]


def test_a_request_that_expires_while_it_waits_makes_room_for_others():
    late = {"dynamic": True, "default_timeout_us": 1000}
    shared = Shared((2, 0, {"dynamic": False}), (3, 0, late), (1, 0, {"dynamic": False}), units=3)
    a, b, c = shared.models
    a.send("a1")
    b.send("b1")
    c.send("c1")
    b.wait(5 * MS)
    assert [(name, text) for name, _, text in b.calls] == [("b1", "Request timeout expired")]
    assert shared.running == [True, False, True]


def test_a_refused_model_makes_room_for_others():
    shared = Shared((2, 0, {"dynamic": False}), (3, 0, {"dynamic": False}), (1, 0, {"dynamic": False}), units=3)
    a, b, c = shared.models
    a.send("a1")
    b.send("b1")
    c.send("c1")
    b.runtime.refuse("unloading")
    assert shared.running == [True, False, True]


@pytest.mark.parametrize("status", [0, 2])
def test_an_answer_of_any_kind_gives_back(status):
    shared = Shared(PLAIN)
    shared.models[0].send("a1")
    shared.models[0].links[0].execute(status=status)
    assert shared.taken == 0


def test_a_worker_that_dies_gives_back():
    shared = Shared(PLAIN, PLAIN)
    a, b = shared.models
    a.send("a1")
    b.send("b1")
    a.links[0].die()
    assert shared.running == [False, True] and shared.taken == 1
    a.links[0].revive()
    a.send("a2")
    b.links[0].execute()
    assert shared.running == [True, False]


def test_of_a_decoupled_model_the_execution_counts_not_the_stream():
    shared = Shared((1, 0, {"decoupled": True, "dynamic": False}), PLAIN)
    a, b = shared.models
    submit(a.runtime, make_input(a.signature, "a1"), StreamSink(a.calls))
    b.send("b1")
    assert not b.links[0].dispatched
    [stream] = a.links[0].execute_streams()
    assert b.links[0].ids() == [["b1"]] and shared.taken == 1
    a.links[0].respond(stream, final=True)
    assert shared.taken == 1
    b.links[0].execute()
    assert shared.taken == 0


def test_instances_of_one_model_share_too():
    shared = Shared((1, 0, {"dynamic": False, "instances": 3}), units=2)
    [a] = shared.models
    a.send("a1", "a2", "a3")
    assert [len(link.dispatched) for link in a.links] == [1, 1, 0]
    a.links[0].execute()
    assert a.runtime.queued == 0 and shared.taken == 2


class Sharing(RuleBasedStateMachine):
    """Three models of all kinds on three units."""

    @initialize(
        demands=st.lists(st.integers(0, 3), min_size=3, max_size=3),
        priorities=st.lists(st.integers(0, 3), min_size=3, max_size=3),
        instances=st.integers(1, 2),
    )
    def build(self, demands, priorities, instances):
        kinds = (
            {"dynamic": False},
            {"dynamic": True, "max_batch_size": 3, "default_timeout_us": 3000, "max_queue_delay_ns": 2 * MS},
            {"dynamic": True, "max_batch_size": 4, "preserve_ordering": True},
        )
        options = [{**kind, "instances": instances} for kind in kinds]
        self.shared = Shared(*zip(demands, priorities, options, strict=True), units=3)
        self.demands, self.sent, self.names = demands, [], []

    def link(self, which):
        model = self.shared.models[which % 3]
        return model, model.links[which // 3 % len(model.links)]

    @rule(which=st.integers(0, 2), count=st.integers(1, 4))
    def send(self, which, count):
        for _ in range(count):
            self.names.append(f"r{len(self.names)}")
            model = self.shared.models[which]
            self.sent += [(model, request) for request in model.send(self.names[-1])]

    @rule(which=st.integers(0, 5), status=st.sampled_from([0, 0, 2]))
    def execute(self, which, status):
        _, link = self.link(which)
        if link.dispatched:
            link.execute(took_ns=MS // 2, status=status)

    @rule(which=st.integers(0, 5))
    def die(self, which):
        _, link = self.link(which)
        if link.up:
            link.die()

    @rule(which=st.integers(0, 5))
    def revive(self, which):
        _, link = self.link(which)
        if not link.up:
            link.revive()

    @rule(which=st.integers(0, 1000))
    def cancel(self, which):
        if self.sent:
            model, request = self.sent[which % len(self.sent)]
            cancel(model.runtime, request)

    @rule(ms=st.integers(0, 4))
    def wait(self, ms):
        for model in self.shared.models:
            model.wait(ms * MS)

    @invariant()
    def what_runs_is_what_is_taken(self):
        if not hasattr(self, "shared"):
            return
        models = self.shared.models
        links = [(link, n) for model, n in zip(models, self.demands, strict=True) for link in model.links]
        assert self.shared.taken == sum(n for link, n in links if link.dispatched) <= 3
        assert all(len(link.dispatched) <= 1 for link, n in links if n)

    @invariant()
    def the_machine_never_stands_still(self):
        if not hasattr(self, "shared"):
            return
        idle = not any(link.dispatched for model in self.shared.models for link in model.links)
        for model in self.shared.models:
            if idle and model.runtime.queued and any(link.up for link in model.links):
                assert model.runtime.next_timer_ns()  # a batch that may still grow

    def teardown(self):
        if not hasattr(self, "shared"):
            return
        for model in self.shared.models:
            for link in model.links:
                if not link.up:
                    link.revive()
        for _ in range(10 * len(self.names) + 20):
            for model in self.shared.models:
                model.wait(5 * MS)
                for link in model.links:
                    if link.dispatched:
                        link.execute()
        told = [name for model in self.shared.models for name, _, _ in model.calls]
        assert sorted(told) == sorted(self.names)
        assert self.shared.taken == 0


TestSharing = Sharing.TestCase
TestSharing.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
