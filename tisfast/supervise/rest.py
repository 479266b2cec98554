"""When a model version has been idle for so long that its input arena's pages may go.  Layer 4 (supervise)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tisfast import limits

if TYPE_CHECKING:
    from tisfast.engine.served import Runtime


class Rest:
    """Gives the free pages back once after ARENA_TRIM_SECONDS without a request; looked at about once a second."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._answered = 0
        self._active_ns = 0
        self._rested = True

    def look(self, unanswered: int, now_ns: int) -> None:
        """unanswered: requests that have not had their final answer."""
        cache = self._runtime.cache
        answered = self._runtime.stats.execution_count + (0 if cache is None else cache.hit_times.count)
        if unanswered or answered != self._answered:
            self._answered, self._active_ns, self._rested = answered, now_ns, False
        elif not self._rested and now_ns - self._active_ns >= limits.ARENA_TRIM_SECONDS * 1e9:
            self._rested = True
            self._runtime.arena.trim()
