"""Who sleeps for whom: the rule by itself, and the budget over models of the tests' own, with time that they turn."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tisfast.models.memory_budget import Account, MemoryBudget, amount, decide

MB = 1 << 20


def account(key, nbytes, used=0.0, awake=True, free=True):
    return Account(key, nbytes, used, awake, free)


def test_below_the_budget_nobody_sleeps():
    assert decide([account("a", 5), account("b", 5)], 10).sleep == ()


def test_who_is_unused_for_longest_sleeps_first():
    assert decide([account("a", 4, 3), account("b", 4, 1), account("c", 4, 2)], 8).sleep == ("b",)
    assert decide([account("a", 4, 3), account("b", 4, 1), account("c", 4, 2)], 4).sleep == ("b", "c")


def test_nobody_sleeps_who_need_not():
    """The longest unused is small; the next one alone is enough."""
    assert decide([account("small", 1, 1), account("large", 8, 2), account("hot", 4, 3)], 10).sleep == ("large",)


def test_those_with_requests_stay_and_nobody_sleeps_for_nothing():
    busy = [account("a", 6, 1, free=False), account("b", 6, 2, free=False)]
    verdict = decide([*busy, account("c", 1, 0)], 10)
    assert verdict.sleep == () and verdict.over == 3
    assert decide([*busy, account("c", 1, 0)], 12).sleep == ("c",)


def test_a_model_above_the_budget_is_left_out():
    verdict = decide([account("huge", 20, 1), account("a", 6, 2), account("b", 6, 3)], 10)
    assert (verdict.sleep, verdict.too_large) == (("a",), ("huge",))


def test_the_sleeping_take_nothing():
    assert decide([account("a", 9, awake=False), account("b", 9)], 10).sleep == ()


ACCOUNTS = st.lists(
    st.builds(Account, st.uuids(), st.integers(0, 30), st.floats(0, 9), st.booleans(), st.booleans()), max_size=8
)


@settings(max_examples=300, deadline=None)
@given(ACCOUNTS, st.integers(1, 60))
def test_the_rule(accounts, budget):
    verdict = decide(accounts, budget)
    known = {each.key: each for each in accounts}
    assert all(known[key].awake and known[key].free for key in verdict.sleep)
    counted = [each for each in accounts if each.awake and each.nbytes <= budget]
    left = sum(each.nbytes for each in counted if each.key not in verdict.sleep)
    avoidable = sum(each.nbytes for each in counted if not each.free) <= budget
    assert left <= budget or not avoidable
    assert verdict.over == max(0, left - budget)
    if not avoidable:
        assert verdict.sleep == ()
    for key in verdict.sleep:  # each of them is needed
        assert left + known[key].nbytes > budget


def test_amounts():
    assert [amount(n) for n in (5 << 10, 3 * MB // 2, 2 << 30)] == ["5 KiB", "1.5 MiB", "2.0 GiB"]


class Model:
    """A model version with requests of its own; sleeping and waking take turns of the loop."""

    def __init__(self, name, nbytes, turns=1):
        self.title, self.nbytes, self.turns = name, nbytes, turns
        self.used_ms, self.asleep, self.workers = 0, False, True
        self.queued = self.answered = self.sent = 0
        self.wanted = None
        self.pids = (1,)

    @property
    def may_sleep(self):
        return not self.asleep and self.workers and not self.queued

    def send(self, now):
        self.sent += 1
        self.queued += 1
        if self.wanted is not None:
            self.wanted()

    def work(self, now):
        """Answer what waits, if there is anybody to do it."""
        if self.workers and self.queued:
            self.answered += self.queued
            self.queued, self.used_ms = 0, now

    async def sleep(self, wanted):
        assert not self.queued, "a model with requests was put to sleep"
        self.asleep, self.wanted = True, wanted
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self.workers = False

    def wake(self):
        assert self.asleep and not self.workers
        self.asleep, self.wanted = False, None
        return self._rise()

    async def _rise(self):
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self.workers = True


class Steps(asyncio.SelectorEventLoop):
    """Measurements are made at once."""

    def run_in_executor(self, executor, function, *arguments):
        done = self.create_future()
        done.set_result(function(*arguments))
        return done


def measured(workers):
    return {model: model.nbytes for model in workers}


@pytest.fixture
def loop():
    made = Steps()
    yield made
    made.close()


def budget_of(loop, nbytes, models, said=None):
    said = said if said is not None else []

    def announce(model, reason):
        said.append((model.title, reason))

    return MemoryBudget(nbytes, lambda: models, loop, announce, measured)


def test_a_request_wakes_a_sleeping_model_and_another_one_makes_room(loop, caplog):
    a, b = Model("a", 6 * MB), Model("b", 6 * MB)
    said = []
    budget = budget_of(loop, 10 * MB, [a, b], said)

    async def scene():
        b.used_ms = 5
        await budget.look()
        assert (a.asleep, b.asleep) == (True, False) and said[0][0] == "a" and "a request wakes it" in said[0][1]
        a.send(6)
        while a.queued:
            await asyncio.sleep(0)
            a.work(7)
        assert (a.asleep, b.asleep) == (False, True) and said[-1] == ("a", "")
        await budget.close()

    loop.run_until_complete(scene())
    figures = dict((model.title, reading) for model, reading in budget.readings())
    assert (figures["a"]["sleeps"], figures["a"]["wakes"], figures["b"]["asleep"]) == (1, 1, True)
    assert figures["b"]["memory_bytes"] == 0 and figures["a"]["memory_bytes"] == 6 * MB


def test_what_cannot_be_mended_is_told_once(loop, caplog):
    huge, a, b = Model("huge", 90 * MB), Model("a", 6 * MB), Model("b", 6 * MB)
    a.queued = b.queued = 1
    budget = budget_of(loop, 10 * MB, [huge, a, b])

    async def scene():
        for _ in range(3):
            await budget.look()

    loop.run_until_complete(scene())
    assert caplog.text.count("left out of the budget") == 1 and caplog.text.count("nobody else is put to sleep") == 1
    assert not huge.asleep


def test_a_model_that_is_gone_is_forgotten(loop):
    models = [Model("a", MB)]
    budget = budget_of(loop, 10 * MB, models)
    loop.run_until_complete(budget.look())
    models.clear()
    loop.run_until_complete(budget.look())
    assert budget.readings() == []


SIZES = (3, 4, 5, 20)  # MB; the last is above the budget
BUDGET = 10


class Life(RuleBasedStateMachine):
    """Requests, answers, looks and time in any order."""

    def __init__(self):
        super().__init__()
        self.loop = Steps()
        self.models = [Model(str(n), size * MB, turns=n) for n, size in enumerate(SIZES * 2)]
        self.budget = budget_of(self.loop, BUDGET * MB, self.models)
        self.now = 1
        self.looks = []

    def turn(self, turns=1):
        for _ in range(turns):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    @rule(which=st.integers(0, 7))
    def request(self, which):
        self.now += 1
        self.models[which].send(self.now)

    @rule(which=st.integers(0, 7))
    def answer(self, which):
        self.now += 1
        self.models[which].work(self.now)

    @rule()
    def look(self):
        self.looks.append(self.loop.create_task(self.budget.look()))

    @rule(turns=st.integers(1, 9))
    def time_passes(self, turns):
        self.turn(turns)

    @rule()
    def everything_is_answered_and_the_budget_holds(self):
        for _ in range(200):
            self.turn(3)
            self.now += 1
            for model in self.models:
                model.work(self.now)
        assert all(model.answered == model.sent for model in self.models)
        self.loop.run_until_complete(self.budget.look())
        awake = sum(model.nbytes for model in self.models if not model.asleep and model.nbytes <= BUDGET * MB)
        assert awake <= BUDGET * MB

    @invariant()
    def nobody_sleeps_with_requests_but_who_is_being_woken(self):
        for model in self.models:
            assert not (model.asleep and model.queued) or self.budget._entries[model].rousing is not None

    def teardown(self):
        for look in self.looks:
            self.loop.run_until_complete(look)
        self.loop.run_until_complete(self.budget.close())
        self.loop.close()


Life.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestLife = Life.TestCase
