"""What is long to make or to do, in slices of the event loop's time.  Layer 4 (operations)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from tisfast import tuning

T = TypeVar("T")
Made = TypeVar("Made")


def in_slices(
    pieces: Iterator[T], finish: Callable[[list[T]], Made], slice_seconds: float = tuning.LOOP_SLICE_SECONDS
) -> Made | asyncio.Future[Made]:
    """finish(all pieces): at once where they take no more than one slice, else later; between slices others have their
    turn.  What the pieces are made of may change meanwhile: each one is made in one go."""
    found: list[T] = []
    if _taken(pieces, found, slice_seconds):
        return finish(found)
    return asyncio.ensure_future(_later(pieces, found, finish, slice_seconds))


async def _later(pieces: Iterator[T], found: list[T], finish: Callable[[list[T]], Made], slice_seconds: float) -> Made:
    whole = False
    while not whole:
        await asyncio.sleep(0)
        whole = _taken(pieces, found, slice_seconds)
    return finish(found)


def _taken(pieces: Iterator[T], found: list[T], seconds: float) -> bool:
    """Whether these are all; False: the time is over."""
    end = time.perf_counter() + seconds
    for count, piece in enumerate(pieces, 1):
        found.append(piece)
        if count % tuning.LOOP_SLICE_PIECES == 0 and time.perf_counter() >= end:
            return False
    return True


class Pieces:
    """Work that nobody waits for, done in small pieces: one slice of all of it in each turn of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()
        self._is_begun = False

    def add(self, work: Callable[[], bool]) -> None:
        """Behind what waits.  work: does a piece, and says whether there is more of it.  On the loop."""
        self._waiting.append(work)
        if not self._is_begun:
            self._is_begun = True
            asyncio.get_running_loop().call_soon(self._slice)

    def _slice(self) -> None:
        try:
            _taken(self._pieces(), [], tuning.LOOP_SLICE_SECONDS)
        finally:  # what has failed is dropped, and told by the loop
            self._is_begun = bool(self._waiting)
            if self._is_begun:
                asyncio.get_running_loop().call_soon(self._slice)

    def _pieces(self) -> Iterator[None]:
        while self._waiting:
            work = self._waiting.popleft()
            if work():
                self._waiting.appendleft(work)
            yield
