"""Blocks of equal size side by side: none twice, none lost, the lowest free one first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.errors import Unavailable
from tisfast.limits import BATCH_ROWS_MAX, BATCH_RUN_BYTES_MAX, BATCH_RUNS_MAX
from tisfast.native import testing as native
from tisfast.native.row_arena import RowArena

KB = 1024


def arena(rows=4, cap=1 << 22):
    made = RowArena("rows", 2 * cap, cap)
    made.rows = rows
    return made


def test_blocks_of_one_size_lie_one_step_apart():
    a = arena()
    blocks = [a.take_block(3000) for _ in range(4)]
    assert [b.offset - blocks[0].offset for b in blocks] == [0, 3072, 6144, 9216]


def test_the_lowest_free_row_is_taken_first():
    a = arena()
    blocks = [a.take_block(3000) for _ in range(4)]
    second, third = blocks[1].offset, blocks[2].offset
    blocks[2] = blocks[1] = None
    assert [a.take_block(3000).offset for _ in range(1)] == [second]
    kept = [a.take_block(3000), a.take_block(3000)]
    assert [b.offset for b in kept] == [second, third]


def test_a_full_run_is_followed_by_another():
    a = arena(rows=2)
    blocks = [a.take_block(3000) for _ in range(5)]
    assert a.run_rows == [(2, 2), (2, 2), (1, 2)]
    assert len({b.offset for b in blocks}) == 5


def test_without_rows_it_is_an_arena():
    a = arena(rows=0)
    block = a.take_block(3000)
    assert (a.run_rows, a.used_blocks) == ([], 1)
    del block
    assert a.used_blocks == 0


def test_rows_are_as_good_as_blocks():
    a = arena()
    one, two = a.take_block(1000), a.take_block(1000)
    memoryview(one)[:] = b"1" * 1000
    memoryview(two)[:] = b"2" * 1000
    assert bytes(memoryview(one)) == b"1" * 1000


def test_runs_take_half_of_the_arena_at_most():
    a = arena(rows=4, cap=64 * KB)
    blocks = [a.take_block(8 * KB) for _ in range(6)]
    assert a.run_rows == [(4, 4)]
    with pytest.raises(Unavailable):
        blocks += [a.take_block(8 * KB) for _ in range(4)]


def test_sizes_are_bounded_and_empty_runs_make_room():
    a = arena(rows=2, cap=1 << 24)
    kept = [a.take_block(512 * n) for n in range(1, BATCH_RUNS_MAX + 2)]
    assert len(a.run_rows) == BATCH_RUNS_MAX
    del kept[:3]
    kept.append(a.take_block(512 * 99))
    assert (1, 2) in a.run_rows and len(a.run_rows) == BATCH_RUNS_MAX - 2
    kept.clear()


def test_rows_that_are_taken_count_and_empty_runs_do_not():
    """Else a replaced copy, which has answered everything, would keep its worker until it is trimmed."""
    a = arena(rows=2)
    blocks = [a.take_block(KB) for _ in range(3)]
    assert (a.used_blocks, a.run_rows) == (3, [(2, 2), (1, 2)])
    blocks.pop()
    assert (a.used_blocks, a.run_rows) == (2, [(2, 2), (0, 2)])
    blocks.clear()
    assert (a.used_blocks, a.run_rows) == (0, [(0, 2), (0, 2)])


def test_trimming_gives_empty_runs_back():
    a = arena()
    block = a.take_block(100 * KB)
    memoryview(block)[:] = bytes(100 * KB)
    a.trim()
    assert a.used_blocks == 1
    del block
    a.trim()
    assert (a.used_blocks, a.used_bytes, a.run_rows, a.resident_bytes) == (0, 0, [], 0)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5000)), max_size=200))
def test_no_byte_belongs_to_two_and_none_is_lost(steps):
    a = arena(rows=3, cap=1 << 20)
    held = []
    for take, nbytes in steps:
        if take or not held:
            try:
                held.append(a.take_block(nbytes))
            except Unavailable:
                continue
        else:
            held.pop(nbytes % len(held))
        spans = sorted((b.offset, b.offset + b.nbytes) for b in held)
        assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
    held.clear()
    a.trim()
    assert (a.used_blocks, a.used_bytes, a.stale) == (0, 0, 0)


@pytest.mark.parametrize("rows", [2, 63, 64, 65, 128, BATCH_ROWS_MAX, BATCH_ROWS_MAX + 50])
def test_a_run_has_as_many_rows_as_are_asked_for_up_to_a_bound(rows):
    a = arena(rows=rows, cap=1 << 24)
    blocks = [a.take_block(600) for _ in range(min(rows, BATCH_ROWS_MAX))]
    assert a.run_rows == [(len(blocks), len(blocks))]
    assert [b.offset - blocks[0].offset for b in blocks] == [1024 * i for i in range(len(blocks))]
    blocks.append(a.take_block(600))
    assert a.run_rows[1] == (1, min(rows, BATCH_ROWS_MAX))


def test_a_run_is_bounded_in_bytes_and_one_row_is_none():
    most = BATCH_RUN_BYTES_MAX
    a = arena(rows=4, cap=16 * most)
    kept = [a.take_block(most // 2), a.take_block(most // 2 + 1)]
    assert a.run_rows == [(1, 2)]
    assert len({b.offset for b in kept}) == 2


def test_rows_are_of_one_step_and_not_of_one_size():
    a = arena(rows=4)
    blocks = [a.take_block(n) for n in (1025, 1536, 1300, 1100)]
    assert a.run_rows == [(4, 4)]
    assert [len(b) for b in blocks] == [1025, 1536, 1300, 1100]


def test_empty_blocks_are_no_rows():
    a = arena(rows=4)
    block = a.take_block(0)
    assert (a.run_rows, len(block)) == ([], 0)


def test_a_row_that_is_in_no_run_is_counted_and_changes_nothing():
    a = arena(rows=4)
    kept = [a.take_block(1000) for _ in range(2)]
    last = kept[-1].handle
    for handle in (last + 1000, (1 << 40) - 1):
        native.give(a, handle)
    assert (a.stale, a.run_rows) == (2, [(2, 4)])


def test_a_block_beside_rows_goes_back_as_in_any_arena():
    a = arena(rows=4, cap=64 * KB)
    large = a.take_block(40 * KB)
    assert (a.run_rows, large.handle >> 40 != 0) == ([], True)
    handle = large.handle
    del large
    assert a.used_blocks == 0
    native.give(a, handle)
    assert a.stale == 1


def test_an_arena_in_pieces_has_rows_apart():
    a = RowArena("pieces", 64 * KB, 64 * KB)
    small = [a.take_block(4 * KB) for _ in range(15)]
    del small[::2]
    a.rows = 4
    block = a.take_block(4 * KB)
    assert a.run_rows == []
    assert all(abs(block.offset - each.offset) >= 4 * KB for each in small)


def test_the_top_is_trimmed_without_empty_runs():
    a = arena(rows=2, cap=1 << 22)
    block = a.take_block(100 * KB)
    memoryview(block)[:] = bytes(100 * KB)
    assert a.trim_top(1 << 30) == 0, "a row is out"
    del block
    assert a.run_rows == [(0, 2)]
    assert a.trim_top(1 << 30) > 0
    assert (a.run_rows, a.used_bytes, a.resident_bytes) == ([], 0, 0)
