"""Blocks of arenas: none twice, none lost, stale handles refused; promises that give way; views that are aimed."""

from __future__ import annotations

import gc
import os
import platform
import resource
import select
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.descriptors import leads_to
from tests.native.helpers import ShmFile
from tisfast import limits, tuning
from tisfast.errors import BadRequest, Internal, NotFound, Unavailable
from tisfast.native import testing as native
from tisfast.native.memory import Arena, BufferView, die_with_parent, now_ns, trim_heap
from tisfast.native.region import ClientFile, Region, Regions, SystemRegion

MB = 1 << 20
PAGE = 4096
SECOND = 1_000_000_000


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40_000)), max_size=150))
@settings(max_examples=80)
def test_no_byte_belongs_to_two_blocks_and_use_is_what_is_out(steps):
    arena, held = Arena("blocks", 4 * MB, 2 * MB), []
    for take, n in steps:
        if take or not held:
            try:
                block = arena.take_block(n)
            except Unavailable:
                assert arena.used_bytes + native.cost(arena, n) > 2 * MB or n > 2 * MB
                continue
            memoryview(block)[:] = bytes([len(held) % 251]) * n
            held.append((block, bytes([len(held) % 251]) * n))
            block = None
        else:
            held.pop(n % len(held))
        spans = sorted((each.offset, each.offset + each.nbytes) for each, _ in held if each.nbytes)
        assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
        assert arena.used_blocks == len(held)
        assert arena.used_bytes == sum(native.cost(arena, block.nbytes) for block, _ in held)
    assert all(bytes(memoryview(block)) == data for block, data in held)
    held.clear()
    assert (arena.used_blocks, arena.used_bytes, arena.stale) == (0, 0, 0)


@pytest.mark.parametrize(("nbytes", "cost"), [(0, 512), (1, 512), (512, 512), (513, 1024), (4096, 4096), (4097, 8192)])
def test_a_block_costs_what_it_takes(nbytes, cost):
    arena = Arena("cost", MB, MB)
    held = arena.take_block(nbytes)
    assert native.cost(arena, nbytes) == arena.used_bytes == cost
    assert len(held) == nbytes


def test_a_handle_that_is_not_out_is_counted_and_changes_nothing():
    arena = Arena("stale", MB, MB)
    block = arena.take_block(700)
    handle = block.handle
    for wrong in (0, handle + 1, handle ^ (1 << 41), 2**64 - 1):
        native.give(arena, wrong)
    assert (arena.stale, arena.used_blocks) == (4, 1)
    del block
    native.give(arena, handle)
    assert (arena.stale, arena.used_blocks) == (5, 0)


def test_a_block_that_was_out_is_not_the_one_that_is_out_now():
    arena = Arena("generations", MB, MB)
    first = arena.take_block(700)
    handle, offset = first.handle, first.offset
    del first
    second = arena.take_block(700)
    assert second.offset == offset, "it lies where the last one lay"
    native.give(arena, handle)
    assert (arena.stale, arena.used_blocks) == (1, 1)


def test_an_arena_whose_blocks_a_worker_hands_out_knows_of_none():
    worker = Arena("worker", MB, MB)
    block = worker.take_block(1000)
    memoryview(block)[:5] = b"hello"
    server = Arena("server", MB, 0, os.dup(worker.fd))
    assert native.copy_out(server, block.offset, 5) == b"hello"
    assert (server.used_blocks, server.used_bytes, server.trim(), server.trim_top(MB)) == (0, 0, 0, 0)


def test_a_lease_gives_its_block_back_once():
    arena = Arena("lease", MB, MB)
    block = arena.take_block(1000)
    lease = native.lease(arena, block.handle, 5)
    memoryview(block)[:5] = b"hello"
    assert bytes(memoryview(lease)) == b"hello"
    del lease
    assert (arena.used_blocks, arena.stale) == (0, 0)
    del block
    assert (arena.used_blocks, arena.stale) == (0, 1)


def test_an_arena_of_no_file_names_it():
    fd = os.open("/dev/null", os.O_RDWR)
    with pytest.raises(Internal, match=r"^cannot map memory file 'nothing' of 1048576 bytes: No such device$"):
        Arena("nothing", MB, MB, fd)
    assert not leads_to(fd, "/dev/null")


def test_a_limit_of_address_space_is_named():
    """Some schedulers of batch jobs set it for all processes."""
    code = """
import resource
from tisfast.native.memory import Arena
resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
Arena("large", 1 << 37, 1 << 20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cannot map memory file 'large' of 137438953472 bytes: Cannot allocate memory; this process" in done.stderr
    assert "may have 68719476736 bytes of address space (ulimit -v), and arenas" in done.stderr


def test_an_arena_larger_than_any_file_is_refused_with_its_size():
    with pytest.raises(Internal, match=r"^cannot create memory file 'huge' of 18446744073709551615 bytes: "):
        Arena("huge", 2**64 - 1, MB)


def test_an_arena_without_room_for_one_block_is_refused():
    with pytest.raises(Internal, match=r"^no memory for the block table of 'small' \(100 bytes\)$"):
        Arena("small", 100, 100)


def test_without_descriptors_an_arena_says_so():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(Internal, match=r"^cannot create memory file 'late' of 1048576 bytes: Too many open files$"):
            Arena("late", MB, MB)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_workers_have_seen_leaves_no_pages_behind():
    arena = Arena("shown", MB, MB)
    memoryview(arena.take_block(MB // 2))[:] = b"x" * (MB // 2)
    kept = os.dup(arena.fd)
    native.show(arena)
    del arena
    assert os.fstat(kept).st_blocks == 0
    os.close(kept)


def test_what_nobody_has_seen_is_left_to_who_holds_it():
    arena = Arena("not shown", MB, MB)
    memoryview(arena.take_block(PAGE))[:] = b"x" * PAGE
    kept = os.dup(arena.fd)
    del arena
    assert os.fstat(kept).st_blocks > 0
    os.close(kept)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_file_holds_what_lies_within_its_mapping(offset, nbytes):
    arena = Arena("holds", MB, MB)
    assert native.holds(arena, offset, nbytes) == (offset + nbytes <= MB)


@pytest.mark.parametrize(
    ("offset", "nbytes", "held"),
    [(0, 8192, True), (0, 8193, False), (8192, 0, True), (8193, 0, False), (8191, 1, True), (2**64 - 1, 2, False)],
)
def test_the_last_byte_of_a_mapping_is_held_and_no_further_one(offset, nbytes, held):
    assert native.holds(Arena("edges", 8192, 8192), offset, nbytes) == held


def test_bytes_are_copied_out_of_a_file():
    arena = Arena("copy", MB, MB)
    block = arena.take_block(10)
    memoryview(block)[:] = b"0123456789"
    assert native.copy_out(arena, block.offset + 2, 5) == b"23456"


# ---- promises


class Owner:
    """Of a promised block: lets it go when it is to give way."""

    def __init__(self, arena, nbytes, come=0, ago=0):
        self.block = arena.take_block(nbytes)
        self.promise = native.promise(arena, self, nbytes, come, ago * SECOND)
        self.gave_way = 0

    def give_way(self):
        self.block = None
        self.gave_way += 1


SLOW = 2 * limits.PROMISE_SECONDS_MAX


def test_a_promise_that_comes_too_slowly_gives_way():
    arena = Arena("promises", 2 * MB, MB)
    slow = Owner(arena, MB // 2, come=1000, ago=SLOW)
    held = arena.take_block(MB - MB // 4)
    assert (slow.gave_way, native.promises(arena)) == (1, 0)
    assert len(held) == MB - MB // 4


def test_the_slowest_gives_way_first_and_no_more_than_must():
    arena = Arena("promises", 2 * MB, MB)
    faster = Owner(arena, MB // 4, come=2000, ago=SLOW)
    slowest = Owner(arena, MB // 4, come=1000, ago=SLOW)
    fast = Owner(arena, MB // 4, come=MB // 4, ago=1)
    held = arena.take_block(MB // 2)
    assert (slowest.gave_way, faster.gave_way, fast.gave_way) == (1, 0, 0)
    more = arena.take_block(MB // 4)
    assert (faster.gave_way, fast.gave_way, native.promises(arena)) == (1, 0, 1)
    assert len(held) + len(more) == MB // 2 + MB // 4


def test_a_promise_that_comes_well_stays_however_full_the_arena_is():
    arena = Arena("promises", 2 * MB, MB)
    owners = [Owner(arena, MB // 4, come=MB // 8, ago=1) for _ in range(4)]
    with pytest.raises(Unavailable, match="no room for 4096 bytes in promises: 1048576 of 1048576 bytes are in use"):
        arena.take_block(4096)
    assert [owner.gave_way for owner in owners] == [0] * 4


def test_none_gives_way_where_all_that_are_slow_make_no_room_enough():
    arena = Arena("promises", 2 * MB, MB)
    slow, held = Owner(arena, MB // 4, ago=SLOW), arena.take_block(MB // 2)
    with pytest.raises(Unavailable):
        arena.take_block(MB // 2 + PAGE)
    assert (slow.gave_way, slow.block is not None, len(held)) == (0, True, MB // 2)


def test_what_has_come_gives_way_no_more():
    arena = Arena("promises", 2 * MB, MB)
    done = Owner(arena, MB, ago=SLOW)
    native.withdraw(done.promise)
    native.withdraw(done.promise)
    with pytest.raises(Unavailable):
        arena.take_block(1)
    assert (done.gave_way, native.promises(arena)) == (0, 0)


def test_promises_beyond_the_bound_of_one_look_stay():
    arena = Arena("promises", 8 * MB, MB)
    most = limits.GIVE_WAY_MAX
    small = [Owner(arena, 512, ago=SLOW) for _ in range(MB // 512)]
    with pytest.raises(Unavailable):
        arena.take_block(MB // 512 * 512)
    assert sum(owner.gave_way for owner in small) == most


# ---- views


def test_a_view_shows_part_of_its_owner_and_keeps_it():
    view, owner = BufferView(), bytearray(b"0123456789")
    native.aim(view, owner, 2, 5, True)
    assert (len(view), bytes(view)) == (5, b"23456")
    memoryview(view)[0] = ord("x")
    assert owner == b"01x3456789"


def test_a_view_of_what_must_not_change_is_read_only():
    view = BufferView()
    native.aim(view, b"0123456789", 0, 10, False)
    shown = memoryview(view)
    assert shown.readonly
    with pytest.raises(TypeError, match="cannot modify read-only memory"):
        shown[0] = 1


def test_a_view_is_aimed_again_when_nobody_looks_through_it():
    view, first = BufferView(), bytearray(b"first")
    native.aim(view, first, 0, 5, True)
    shown, again = memoryview(view), memoryview(view)
    with pytest.raises(BufferError, match=r"^view is exported 2 times and cannot be aimed again$"):
        native.aim(view, bytearray(b"second"), 0, 6, True)
    assert bytes(shown) == b"first"
    shown.release()
    again.release()
    native.aim(view, bytearray(b"second"), 0, 6, True)
    assert bytes(view) == b"second"


def test_memory_of_a_cycle_goes_back_with_it():
    arena = Arena("cycle", MB, MB)
    holder = [arena.take_block(700), arena]
    holder.append(holder)
    kept = os.dup(arena.fd)
    del holder, arena
    gc.collect()
    assert os.fstat(kept).st_nlink == 0
    os.close(kept)


# ---- the process


def test_the_clock_goes_on_and_is_the_system_s():
    import time

    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    now = now_ns()
    assert before <= now <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)


GLIBC = platform.libc_ver()[0] == "glibc" and "asan" not in os.environ.get("LD_PRELOAD", "")


@pytest.mark.skipif(not GLIBC, reason="other allocators do so by themselves, or not at all")
def test_the_heap_gives_back_what_is_free():
    held = [bytearray(2000) for _ in range(20_000)]
    kept = held[::1000]
    del held
    before = resident()
    trim_heap()
    assert before - resident() > 2000, "pages, of some 9000 between those that are kept"
    assert all(len(each) == 2000 for each in kept)


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1])


CHILD = """
import signal, sys
from tisfast.native.memory import die_with_parent
die_with_parent(int(sys.argv[1]))
print("bound", flush=True)
signal.pause()
"""
PARENT = """
import os, signal, subprocess, sys
command = [sys.executable, "-c", sys.argv[1], str(os.getpid())]
child = subprocess.Popen(command, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_bound_process_is_killed_with_its_parent():
    parent = subprocess.run(
        [sys.executable, "-c", PARENT, CHILD], capture_output=True, text=True, check=False, timeout=120
    )
    assert parent.returncode == -signal.SIGKILL
    try:
        child = os.pidfd_open(int(parent.stdout))
    except ProcessLookupError:
        return
    try:
        assert select.select([child], [], [], 60)[0], "it is gone, too"
    finally:
        os.close(child)


def test_a_parent_that_is_gone_already_is_an_error():
    with pytest.raises(ProcessLookupError):
        die_with_parent(2**22 + 1)


# ---- regions


def test_a_region_of_a_file_that_may_not_be_written_is_refused():
    with ShmFile(bytes(PAGE)) as shm:
        fd = os.open(shm.path, os.O_RDONLY)
        text = r"failed to register shared memory region 'r': unable to process address space: Permission denied"
        with pytest.raises(BadRequest, match=text):
            SystemRegion("r", shm.key, fd, 0, PAGE)
        assert not leads_to(fd, shm.path)


@pytest.mark.parametrize(("offset", "nbytes"), [(1, 2**64 - 1), (99, 2**64 - 99), (50, 2**64 - 1)])
def test_a_length_that_wraps_around_is_told_as_such(offset, nbytes):
    with ShmFile(bytes(PAGE)) as shm:
        region = SystemRegion("r", shm.key, shm.open(), 0, 100)
        with pytest.raises(BadRequest) as refused:
            region.fetch(offset, nbytes)
    assert str(refused.value) == (
        f"Integer overflow detected: byte_size ({nbytes}) + offset ({offset}) exceeds maximum value ({2**64 - 1}) for "
        "region 'r'"
    )


def test_a_region_is_copied_to_a_block_within_its_bounds():
    arena = Arena("to", MB, MB)
    block = arena.take_block(100)
    memoryview(block)[:] = bytes(100)
    with ShmFile(b"0123456789" * 10) as shm:
        region = SystemRegion("r", shm.key, shm.open(), 0, 100)
        region.copy_to(10, block, 95, 5)
        assert bytes(memoryview(block)) == bytes(95) + b"01234"
        for at, nbytes in ((96, 5), (101, 0), (0, 101), (2**64 - 1, 2)):
            with pytest.raises(Internal, match=f"^{nbytes} bytes at {at} lie outside a block of 100 bytes$"):
                region.copy_to(0, block, at, nbytes)
        with pytest.raises(BadRequest, match="Invalid offset for shared memory region: 'r'"):
            region.copy_to(100, block, 0, 1)
        assert bytes(memoryview(block)) == bytes(95) + b"01234"


def test_copies_that_a_thread_makes_are_as_right_as_short_ones():
    nbytes = tuning.LOOP_COPY_BYTES_MAX + PAGE
    data = os.urandom(PAGE) * (nbytes // PAGE)
    with ShmFile(bytes(nbytes)) as shm:
        region = SystemRegion("r", shm.key, shm.open(), 0, nbytes)
        region.store(0, data)
        assert shm.data == data
        assert region.fetch(0, nbytes) == data
        shm.truncate(PAGE)
        with pytest.raises(BadRequest, match=f"has shrunk to {PAGE} bytes, {nbytes} are needed"):
            region.fetch(0, nbytes)


def test_a_client_s_file_is_copied_out_by_the_offsets_of_the_file():
    with ShmFile(bytes(PAGE) + b"0123456789") as shm:
        file = ClientFile("r", shm.key, shm.open(), PAGE, 10)
        assert (file.guarded, file.begin, file.nbytes) == (True, PAGE, 10)
        assert native.copy_out(file, PAGE + 3, 4) == b"3456"
        assert native.holds(file, PAGE, 10) and not native.holds(file, PAGE - 1, 10)
        shm.truncate(PAGE)
        with pytest.raises(BadRequest, match=f"has shrunk to {PAGE} bytes, {PAGE + 7} are needed"):
            native.copy_out(file, PAGE + 3, 4)


def test_a_region_that_is_no_one_s_holds_nothing():
    with pytest.raises(BadRequest, match="Invalid offset for shared memory region"):
        Region().fetch(0, 0)


def test_regions_are_found_by_name_and_listed_in_order():
    table = Regions()
    with ShmFile(bytes(PAGE)) as shm:
        made = {name: SystemRegion(name, shm.key, shm.open(), 0, 10) for name in ("b", "a", "c")}
        for region in made.values():
            table.add(region)
        assert table.lookup("b") is table.get("b") is made["b"]
        assert [region.name for region in table.all()] == ["a", "b", "c"]
        table.remove("b")
        with pytest.raises(NotFound, match=r"^Unable to find shared memory region: 'b'$"):
            table.lookup("b")
        with pytest.raises(KeyError):
            table.remove("b")
        assert len(table) == 2
