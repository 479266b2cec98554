"""Many regions of GPU memory, and many who wait for them: the loop does a bounded piece of work in each turn."""

from __future__ import annotations

import asyncio

import pytest

from tests.operations.helpers import logged, registered
from tests.waiting import until as comes_true
from tisfast import tuning
from tisfast.errors import Internal, Unavailable
from tisfast.native.cuda_faces import By, Holder, Refusal
from tisfast.operations import region_closings

REGIONS, WAITERS = 60, 20


@pytest.fixture
def many(regions, device, monkeypatch):
    """The files of so many regions.  From then on slices are as short as can be, and who waits waits for a moment."""

    async def register():
        for at in range(REGIONS):
            await regions.register_cuda(f"r{at:02}", device.handle("a"), 0, 10)
        monkeypatch.setattr("tisfast.tuning.LOOP_SLICE_SECONDS", 0)
        monkeypatch.setattr("tisfast.limits.GPU_TOLD_SECONDS", 0.2)
        monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.4)
        monkeypatch.setattr(region_closings, "_LOOK_SECONDS", float("inf"))  # however slow this machine is
        return [regions.table.get(f"r{at:02}").file for at in range(REGIONS)]

    return register


class Instance:
    """Its requests use so much memory; counts the walks over them."""

    def __init__(self, name, memories):
        self.holder = Holder(name, None, uses=self.uses)
        self.walks, self._used = 0, {id(each) for each in memories}
        for each in memories:
            each.holders[name] = self.holder

    def uses(self):
        self.walks += 1
        yield self._used
        yield set()


async def turns_until(what):
    """How many turns of the loop others had."""
    turns = 0
    while not what():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_all_that_is_unregistered_is_let_go_of_in_slices_and_forgotten_at_once(regions, device, many):
    async def unregister():
        (await many()).clear()
        await comes_true(lambda: device.open_count == REGIONS)
        told = regions.unregister_cuda("")
        assert regions.cuda_status("") == []
        assert device.open_count == len(regions._closings) == REGIONS
        assert await turns_until(lambda: device.open_count == 0) >= REGIONS // tuning.LOOP_SLICE_PIECES
        await told
        assert len(regions._closings) == 0

    registered(unregister)


def test_who_unregisters_one_of_all_that_are_let_go_of_waits_for_that(regions, device, many):
    async def unregister():
        files = await many()
        kept = files.pop()
        files.clear()
        every, one, none = (regions.unregister_cuda(name) for name in ("", "r59", "r00"))
        assert len(regions._closings) == REGIONS
        await none
        assert not one.done() and not every.done()
        again = regions.register_cuda("r59", device.handle("a"), 0, 10)
        later = regions.unregister_cuda("r59")
        del kept
        with pytest.raises(Unavailable, match="'r59' was unregistered while it was being registered"):
            await again
        await asyncio.gather(every, one, later)

    registered(unregister)


@pytest.mark.parametrize("name", ["", "r00"])
def test_the_requests_of_an_instance_are_walked_over_once_for_all_who_wait_alike(regions, many, caplog, name):
    async def wait():
        files = await many()
        instances = [Instance(f"m_0_{at}", [each.memory for each in files]) for at in range(2)]
        waiting = [regions.unregister_cuda(name) for _ in range(WAITERS)]
        await asyncio.wait(waiting)
        errors = {str(each.exception()) for each in waiting}
        for each in files:
            each.memory.holders.clear()
        del each
        files.clear()
        await regions.unregister_cuda("")
        return errors, [each.walks for each in instances]

    errors, walks = registered(wait)
    assert len(errors) == 1 and "requests use it in m_0_0 and m_0_1. A request whose" in errors.pop()
    assert walks == [1, 1]  # for the log and for the answers
    assert len(logged(caplog)) == 1


def test_the_requests_of_an_instance_are_walked_over_once_for_all_names(regions, many):
    """And who is told something makes way for others in between."""

    async def wait():
        files = await many()
        instance = Instance("m_0_0", [each.memory for each in files])
        waiting = [regions.unregister_cuda(f"r{at:02}") for at in range(REGIONS)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        turns = await turns_until(lambda: all(each.done() for each in waiting))
        for each in files:
            each.memory.holders.clear()
        del each
        files.clear()
        await regions.unregister_cuda("")
        assert {type(each.exception()) for each in waiting} == {Unavailable}
        return turns, instance.walks

    turns, walks = registered(wait)
    assert turns >= REGIONS - 1
    assert walks == 1


def test_what_is_told_of_many_regions_is_made_in_slices_once(regions, device, many, monkeypatch):
    async def wait():
        files, asked = await many(), []
        waits = type(device).waits

        def counted(self, gpu):
            asked.append(gpu)
            return waits(self, gpu)

        monkeypatch.setattr("tests.native.helpers.HostDevice.waits", counted)
        memories = [each.memory for each in files]
        files.clear()
        waiting = [regions.unregister_cuda("") for _ in range(WAITERS)]
        await comes_true(lambda: len(asked) == REGIONS)  # the log has them
        await turns_until(lambda: len(asked) > REGIONS)
        made = await turns_until(lambda: len(asked) == 2 * REGIONS)
        await asyncio.wait(waiting)
        memories.clear()
        await regions.unregister_cuda("")
        assert {type(each.exception()) for each in waiting} == {Unavailable}
        return made, len(asked)

    made, asked = registered(wait)
    assert made >= REGIONS // tuning.LOOP_SLICE_PIECES - 1
    assert asked == 2 * REGIONS


def test_closings_of_one_name_end_in_one_piece_of_work_each(regions, device, busy):
    """Whatever ends, nobody looks at the others of its name."""

    async def end():
        busy()
        for _ in range(REGIONS):
            coming = regions.register_cuda("c", device.handle("a"), 0, 10)
            regions.unregister_cuda("c").cancel()
            coming.cancel()
        assert len(regions._closings) == REGIONS
        busy.over.set()
        await comes_true(lambda: len(regions._closings) == 0)
        assert regions._closings._of == {}
        await regions.unregister_cuda("c")

    registered(end)


def test_who_has_left_while_much_is_refused_leaves_nothing(regions, many):
    async def leave():
        files = await many()
        for each in files:
            each.memory.unclosed["who"] = Refusal(By.SERVER, "the server", "no")
        unclosed = [each.memory.unclosed for each in files]
        del each
        files.clear()
        for _ in range(WAITERS):
            waits = regions.unregister_cuda("")
            await asyncio.sleep(0)
            waits.cancel()
        with pytest.raises(Internal, match="'r00', 'r01', 'r02' and 57 others unregistered, but not closed: the"):
            await regions.unregister_cuda("")
        for each in unclosed:
            each.clear()
        await regions.unregister_cuda("")
        closings = regions._closings
        assert not closings._of and not closings._all.waiting and not closings._all.refused and not closings._told

    registered(leave)
