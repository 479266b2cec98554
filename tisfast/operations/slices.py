"""Answers that are long to make, made in slices of the event loop's time.  Layer 4 (operations)."""

from __future__ import annotations

import asyncio
import time
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
