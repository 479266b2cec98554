"""When a model version has been idle for so long that its input arena's pages may go.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tisfast import tuning

if TYPE_CHECKING:
    from tisfast.engine.interface import Runtime


class IdleTrimmer:
    """Gives the free pages back once after ARENA_TRIM_SECONDS without a request; looked at about once a second.

    The kernel takes some 0.1 s for a gigabyte of them, so others have their turn after each slice.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._answered = 0
        self._active_ns = 0
        self._rested = True

    def look(self, unanswered: int, now_ns: int, pinned: Callable[[], bool] = lambda: False) -> None:
        """unanswered: requests that have not had their final answer; pinned: whether an instance may have pinned pages
        for its GPU, which would go on with pages that are nobody else's any more: instances let go of them when they
        are idle, too.
        """
        cache = self._runtime.cache
        answered = self._runtime.stats.execution_count + (0 if cache is None else cache.hit_times.count)
        if unanswered or answered != self._answered:
            self._answered, self._active_ns, self._rested = answered, now_ns, False
        elif not self._rested and now_ns - self._active_ns >= tuning.ARENA_TRIM_SECONDS * 1e9:
            self._rested = True
            self._trim(pinned)

    def _trim(self, pinned: Callable[[], bool]) -> None:
        if pinned():
            self._rested = False  # the next look tries again
        if not self._rested:
            return  # somebody came
        if self._runtime.arena.trim_top(tuning.ARENA_TRIM_SLICE_BYTES):
            asyncio.get_running_loop().call_soon(self._trim, pinned)
        else:
            self._runtime.arena.trim()  # what blocks that are still out have left below them
