"""Memory that a burst took goes back to the system."""

from __future__ import annotations

from tisfast import tuning
from tisfast.front.heap_trim import Heap, private_bytes


def test_free_pages_of_the_heap_go_back():
    heap = Heap()
    before = private_bytes()
    pieces = [bytes(50_000) for _ in range(4_000)]  # 200 MB, each below what malloc maps by itself
    kept = pieces[::400]
    del pieces
    assert [heap.look() for _ in range(tuning.HEAP_LOOKS)] == [False] * (tuning.HEAP_LOOKS - 1) + [True]
    assert private_bytes() < before + 1.2 * tuning.HEAP_GROWTH_BYTES
    assert len(kept) == 10
