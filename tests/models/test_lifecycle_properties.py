"""Any orders, in any order and beside each other, over models that fail at any step: what the lifecycle promises holds.

There are no processes and no time: tests.models.lifecycle_world.
"""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.models.lifecycle_world import LEAVES, STEPS_OF, OnDisk, World
from tests.repo.sources import NAMES
from tisfast.repo.load_override import LoadOrder

names = st.sampled_from(NAMES)


class Lives(RuleBasedStateMachine):
    """The rules are what clients, and people at the disk, do."""

    @initialize(retries=st.integers(0, 1))
    def begin(self, retries):
        self.world = World(retries)
        self.blocks: list = []

    # ---- the disk, and what happens to loads

    @rule(name=st.sampled_from(LEAVES), versions=st.sampled_from([(1,), (2,), (1, 2)]), two=st.booleans())
    def edit(self, name, versions, two):
        revision = self.world.disk[name].revision if name in self.world.disk else 1
        self.world.disk[name] = OnDisk(revision, versions, two)

    @rule(name=names)
    def touch(self, name):
        if name in self.world.disk:
            self.world.disk[name].revision += 1

    @rule(name=names, wrong=st.booleans())
    def spoil(self, name, wrong):
        if name in self.world.disk:
            self.world.disk[name].wrong = wrong

    @rule(name=names)
    def remove(self, name):
        self.world.remove(name)

    @rule(name=names, how=st.sampled_from([None, "load", "grow", "bug", "join", "give"]))
    def breaks(self, name, how):
        self.world.break_or_mend(name, how)

    @rule(name=st.sampled_from(LEAVES), seconds=st.sampled_from([0.0, 0.01, 1.0, 30.0]))
    def takes(self, name, seconds):
        self.world.seconds[name] = seconds

    # ---- orders

    @rule(name=names, force=st.booleans())
    def load(self, name, force):
        self.world.order("load", name, self.world.lifecycle.load(LoadOrder(name, force=force)))

    @rule(name=st.sampled_from(LEAVES), files=st.booleans())
    def load_as_a_call_says(self, name, files):
        order = LoadOrder(name, "{}", {"1/model.py": b""} if files else {})
        self.world.order("load", name, self.world.lifecycle.load(order))

    @rule(name=names, dependents=st.booleans())
    def unload(self, name, dependents):
        work = self.world.lifecycle.unload(name, dependents=dependents)
        self.world.order("unload", name, work, STEPS_OF[name] if dependents else {name})

    @rule(wanted=st.sets(names, min_size=1))
    def apply(self, wanted):
        gone = {name for name in wanted if name not in self.world.disk}
        self.world.order("apply", "", self.world.lifecycle.apply(wanted), gone)

    @precondition(lambda self: self.world.orders)
    @rule(data=st.data())
    def leave(self, data):
        """A client goes; what it asked for goes on."""
        data.draw(st.sampled_from(self.world.orders)).task.cancel()

    # ---- requests

    @rule(name=names)
    def ask(self, name):
        if self.world.registry.versions(name):
            runtime = self.world.registry.resolve(name)
            self.blocks.append((runtime, runtime.arena.take_block(1)))

    @precondition(lambda self: self.blocks)
    @rule()
    def answer(self):
        self.blocks.pop(0)

    # ---- time

    @rule(seconds=st.sampled_from([0.0, 0.002, 0.05, 2.0, 40.0]))
    def time_passes(self, seconds):
        self.world.run(seconds)
        self.who_has_requests_is_there()

    def who_has_requests_is_there(self):
        """Until they have had their time."""
        for runtime, _ in self.blocks:
            made = next((each for each in self.world.made if each.runtime is runtime), None)
            assert made is None or made in self.world.copies.served or made in self.world.leaving.models

    @rule()
    def all_ends(self):
        self.blocks.clear()
        self.world.settle()
        self.world.check_at_rest()

    @rule()
    def everything_can_be_loaded_in_the_end(self):
        """No lock is left, and nothing that failed stands in the way."""
        self.all_ends()
        self.world.disk = {name: OnDisk(revision=self.world.disk.get(name, OnDisk()).revision) for name in NAMES}
        self.world.breaks.clear()
        self.world.seconds.clear()
        for name in NAMES:
            self.load(name, False)
        self.all_ends()
        assert self.world.serving == set(NAMES)

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        try:
            world.serving.clear()
            world.loop.look = lambda: None
            world.loop.run_until_complete(self.end())
            assert not world.alive
            assert not world.loop.bugs, world.loop.bugs
        finally:
            world.close()

    async def end(self):
        """As Supervisor.stop does."""
        orders = [order.task for order in self.world.orders]
        await self.world.lifecycle.stop()
        ends = await asyncio.gather(*orders, return_exceptions=True)
        assert len(ends) == len(orders)
        served = self.world.copies.clear()
        await asyncio.gather(self.world.leaving.finish(1, "stopping"), *(each.stop(1, "stopping") for each in served))


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


# ---- what it has found


def began(*orders):
    """A world with everything loaded, and what became of the orders, given at once."""
    world = World()
    for name in NAMES:
        world.order("load", name, world.lifecycle.load(LoadOrder(name)))
    world.settle()
    for order in orders:
        order(world)
    world.settle()
    world.check_at_rest()
    return world


def loading(name, config=None, files=()):
    order = LoadOrder(name, config, dict.fromkeys(files, b""))
    return lambda world: world.order("load", name, world.lifecycle.load(order))


def test_a_load_brings_nothing_back_that_a_call_gave_to_another_model():
    """Beside it, that one goes back to the disk; the files that the call gave are gone by then."""
    world = began(loading("d", "{}", ["1/model.py"]), World.settle, loading("d"), loading("a"))
    assert world.copies.held()["d"].source.private is None
    world.close()


def test_an_ensemble_that_is_wrong_on_the_disk_follows_its_steps_as_it_was():
    def spoil(world):
        world.disk["a"].revision += 1
        world.disk["ab"].wrong = True
        world.order("apply", "", world.lifecycle.apply(["a", "ab"]))

    world = began(spoil)
    assert world.serving == set(NAMES)
    assert "wrong" in world.registry.states("ab")[0].reason
    world.close()


def test_a_copy_that_has_just_left_may_be_stopped_once_more():
    """The server ends in the very turn in which it has gone."""
    world = began()
    world.loop.look = lambda: None  # it is stopped behind everybody's back
    served = next(each for each in world.copies.served if each.title == "d version 1")
    for _ in range(2):
        world.loop.run_until_complete(served.stop(1, "stopping"))
    world.close()
