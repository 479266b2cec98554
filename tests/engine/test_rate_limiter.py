"""Shared resources of executions: how much there is, who goes next, what cannot be."""

from __future__ import annotations

import pytest

from tisfast.config.rate_limits import Demand, RateLimit
from tisfast.engine.rate_limiter import GLOBAL_DEVICE, RateLimiter
from tisfast.errors import BadRequest


def needs(*demands, priority=0):
    return RateLimit(tuple(Demand(*demand) for demand in demands), priority)


class Line:
    """Instances that always have something to run.  `ran`: executions in the order of their starts."""

    def __init__(self, *grants):
        self.limiter = RateLimiter(grants)
        self.ran, self.claims = [], {}

    def add(self, name, *demands, priority=0, device=0):
        limit = needs(*demands, priority=priority)
        self.claims[name] = self.limiter.register(name, limit, device, lambda: self.go(name))
        return self.claims[name]

    def go(self, name):
        if self.claims[name].may_run():
            self.claims[name].take()
            self.ran.append(name)

    def end(self, name):
        self.claims[name].give_back()
        self.go(name)  # it asks for its next execution at once, as a model with a queue does
        self.limiter.settle()

    def run(self, *names):
        for name in names:
            self.go(name)
        return self

    def turns(self, count):
        """So many executions, one after the other."""
        while len(self.ran) < count:
            self.end(next(name for name, claim in self.claims.items() if claim.holds))
        return "".join(self.ran)


def test_what_nobody_needs_limits_nobody():
    line = Line()
    line.add("a")
    line.add("b")
    assert line.run("a", "b").ran == ["a", "b"]
    assert line.limiter.resources() == []


def test_there_is_as_much_as_the_largest_single_execution_needs():
    line = Line()
    line.add("a", ("R", 4))
    line.add("b", ("r", 10))
    assert line.limiter.resources() == [("r", 0, 10, 0)]
    line.run("a", "b")
    assert line.ran == ["a"] and line.limiter.resources() == [("r", 0, 10, 4)]
    line.end("a")
    assert line.ran == ["a", "b"] and line.limiter.resources() == [("r", 0, 10, 10)]


def test_the_command_line_says_how_much_there_is_whatever_the_case():
    line = Line(("GPU_Mem", 6, None))
    for name in "abcd":
        line.add(name, ("gpu_MEM", 2))
    assert line.run(*"abcd").ran == ["a", "b", "c"]


def test_a_device_has_resources_of_its_own():
    line = Line(("R", 1, None), ("R", 2, 1))
    for name in "ab":
        line.add(name, ("R", 1), device=0)
    for name in "cd":
        line.add(name, ("R", 1), device=1)
    assert line.run(*"abcd").ran == ["a", "c", "d"]


def test_a_global_resource_is_shared_by_all_devices():
    line = Line()
    line.add("a", ("R", 1, True), device=0)
    line.add("b", ("R", 1, True), device=1)
    assert line.run("a", "b").ran == ["a"]
    assert line.limiter.resources() == [("r", GLOBAL_DEVICE, 1, 1)]


@pytest.mark.parametrize(
    ("priorities", "asked", "order"),
    [
        ((1, 1), "ab", "abababababab"),
        ((0, 0), "ab", "abababababab"),
        ((1, 2), "ab", "aabaabaabaab"),
        ((1, 2), "ba", "baaaabaabaab"),
        ((1, 3), "ab", "aaaabaaabaaabaaab"),
        ((1, 3), "ba", "baaaaaaabaaab"),
        ((2, 3), "ab", "abaababaababaab"),
    ],
)
def test_the_lower_executions_times_priority_goes_next(priorities, asked, order):
    line = Line()
    for name, priority in zip("ab", priorities, strict=True):
        line.add(name, ("R", 1), priority=priority)
    assert line.run(*asked).turns(len(order)) == order  # each as the real Triton executed them


def test_a_large_demand_is_not_starved_by_small_ones():
    line = Line(("R", 4, None))
    line.add("x", ("R", 4))
    for name in "abcd":
        line.add(name, ("R", 1))
    line.run(*"abcd")
    line.run("x")
    assert line.turns(12).count("x") >= 1


def test_who_waits_for_one_thing_does_not_stop_those_who_need_another():
    line = Line()
    line.add("a", ("R", 1))
    line.add("b", ("R", 1))
    line.add("c", ("S", 1))
    assert line.run("a", "b", "c").ran == ["a", "c"]


def test_who_waits_keeps_what_it_needs_from_those_behind_it():
    line = Line()
    line.add("a", ("R", 1))
    line.add("b", ("R", 1), ("S", 1))
    line.add("c", ("S", 1))
    line.run("a", "b", "c")
    assert line.ran == ["a"]
    line.claims["b"].leave()  # its queue is empty: its client left
    line.limiter.settle()
    assert line.ran == ["a", "c"]


def test_turns_are_not_collected_while_there_is_nothing_to_run():
    line = Line()
    line.add("a", ("R", 1))
    line.add("b", ("R", 1))
    line.run("a").turns(50)
    line.run("b")
    assert line.turns(56)[50:] == "bababa"


def test_an_instance_has_one_execution_at_a_time():
    line = Line(("R", 5, None))
    line.add("a", ("R", 1))
    assert line.run("a", "a").ran == ["a"]


def test_what_is_given_back_twice_counts_once():
    line = Line()
    claim = line.add("a", ("R", 1))
    line.run("a")
    claim.give_back()
    claim.give_back()
    assert line.limiter.resources() == [("r", 0, 1, 0)]


def test_an_instance_that_goes_frees_what_it_held_and_shrinks_the_default():
    line = Line()
    line.add("a", ("R", 4))
    line.add("b", ("R", 3))
    line.run("a", "b")
    line.limiter.unregister(line.claims["a"])
    assert line.ran == ["a", "b"] and line.limiter.resources() == [("r", 0, 3, 3)]
    line.limiter.unregister(line.claims["b"])
    assert line.limiter.resources() == []


def test_of_a_resource_named_twice_the_larger_demand_counts():
    line = Line()
    line.add("a", ("R", 1), ("r", 3))
    assert line.limiter.resources() == [("r", 0, 3, 0)]


def test_what_fails_in_one_model_does_not_stop_the_others():
    line = Line(("R", 2, None))
    line.add("a", ("R", 2))

    def fail():
        raise RuntimeError("front")

    broken = line.limiter.register("b", needs(("R", 1)), 0, fail)
    line.add("c", ("R", 1))
    line.run("a")
    broken.may_run()
    line.run("c")
    line.claims["a"].give_back()
    with pytest.raises(RuntimeError, match="front"):
        line.limiter.settle()
    assert line.ran == ["a", "c"]


class TestRefusals:
    """Texts are Triton's; what is refused leaves nothing behind."""

    def test_global_and_of_a_device_in_one_instance(self):
        limiter = RateLimiter()
        with pytest.raises(BadRequest, match="is present as both global and device-specific resource in the model"):
            limiter.register("m_0", needs(("R", 1, True), ("R", 2)), 0, None)
        assert limiter.resources() == []

    @pytest.mark.parametrize("first", [True, False])
    def test_global_and_of_a_device_in_two(self, first):
        limiter = RateLimiter()
        limiter.register("a_0", needs(("R", 1, first)), 0, None)
        with pytest.raises(BadRequest, match="both global and device-specific"):
            limiter.register("b_0", needs(("R", 1, not first)), 0, None)
        assert limiter.resources() == [("r", GLOBAL_DEVICE if first else 0, 1, 0)]

    @pytest.mark.parametrize(
        ("grants", "demand", "granted"),
        [
            ([("R1", 2, None)], ("R1", 4), 2),
            ([("R1", 2, 0)], ("R1", 4), 2),
            ([("R1", 8, 1)], ("R1", 4), 0),
            ([("R2", 8, None)], ("R1", 4), 0),
            ([("R1", 2, None)], ("R1", 4, True), 2),
        ],
    )
    def test_more_than_there_is(self, grants, demand, granted):
        limiter = RateLimiter(grants)
        text = (
            f'Resource count for "R1" is limited to {granted} which will prevent scheduling of one or more model '
            "instances, the minimum required count is 4"
        )
        with pytest.raises(BadRequest) as caught:
            limiter.register("m_0", needs(demand), 0, None)
        assert caught.value.message == text
        assert limiter.resources() == []

    def test_a_global_resource_takes_what_is_said_of_any_device(self):
        limiter = RateLimiter([("R1", 8, 3)])
        limiter.register("m_0", needs(("R1", 4, True)), 0, None)
        assert limiter.resources() == [("r1", GLOBAL_DEVICE, 8, 0)]
