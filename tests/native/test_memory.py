"""Arenas and blocks: leases end with their last holder, full arenas say so, idle ones shrink."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.descriptors import open_descriptors
from tisfast.errors import Unavailable
from tisfast.native.memory import Arena


def test_a_block_lives_as_long_as_somebody_holds_its_buffer():
    arena = Arena("test", 1 << 20, 1 << 20)
    view = memoryview(arena.take_block(700))
    view[699] = 7
    assert arena.used_blocks == 1
    del view
    assert (arena.used_blocks, arena.used_bytes) == (0, 0)


def test_a_full_arena_is_unavailable_and_says_how_full():
    arena = Arena("model-x", 1 << 20, 64 << 10)
    block = arena.take_block(60 << 10)
    with pytest.raises(Unavailable, match="no room for 8192 bytes in model-x: 61440 of 65536 bytes are in use"):
        arena.take_block(8192)
    del block
    assert len(arena.take_block(8192)) == 8192


def test_trim_gives_pages_back():
    arena = Arena("test", 16 << 20, 16 << 20)
    memoryview(arena.take_block(8 << 20))[:] = bytes(8 << 20)
    assert arena.resident_bytes >= 8 << 20
    assert arena.trim() >= 8 << 20
    assert arena.resident_bytes == 0


def test_pages_are_given_back_in_slices_from_the_top():
    arena = Arena("test", 16 << 20, 16 << 20)
    memoryview(arena.take_block(8 << 20))[:] = bytes(8 << 20)
    slices = []
    while nbytes := arena.trim_top(3 << 20):
        slices.append((nbytes, arena.resident_bytes))
    assert slices == [(3 << 20, 5 << 20), (3 << 20, 2 << 20), (2 << 20, 0)]


def test_what_is_out_is_not_given_back():
    arena = Arena("test", 16 << 20, 16 << 20)
    low, high = arena.take_block(4 << 20), arena.take_block(4 << 20)
    for block in (low, high):
        memoryview(block)[:] = b"x" * (4 << 20)
    last = max(low, high, key=lambda block: block.offset)
    assert arena.trim_top(1 << 20) == 0
    assert bytes(memoryview(last)) == b"x" * (4 << 20)


def test_small_blocks_lie_together_in_an_arena_of_any_size():
    arena = Arena("test", 25_276_514_304, 1 << 30)
    blocks = [arena.take_block(700) for _ in range(100)]
    offsets = [block.offset for block in blocks]
    assert max(offsets) - min(offsets) < 1 << 20


def test_nothing_is_left_behind():
    before = open_descriptors()
    for _ in range(50):
        Arena("test", 1 << 20, 1 << 20).take_block(100)
    assert open_descriptors() <= before


def test_arenas_have_no_name_in_dev_shm():
    arena = Arena("a_name_of_its_own", 1 << 20, 1 << 20)
    assert not [name for name in os.listdir("/dev/shm") if "a_name_of_its_own" in name]
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert any("/memfd:" in line and "a_name_of_its_own" in line for line in maps)
    del arena
