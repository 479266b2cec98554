"""How long to wait before a process that died is started again.  No clock, no loop.  Layer 4 (processes)."""

from __future__ import annotations

from tisfast import limits


class Backoff:
    """Doubling delays for deaths in a row.  A process that proved itself (`forgive`) starts the row anew."""

    def __init__(self) -> None:
        self._deaths = 0

    @property
    def deaths(self) -> int:
        """Deaths in a row so far."""
        return self._deaths

    def forgive(self) -> None:
        """The process answered a request, or lived long enough: forget its earlier deaths."""
        self._deaths = 0

    def next_seconds(self, *, was_ready: bool, lived_seconds: float) -> float:
        """Seconds to wait after one more death."""
        if was_ready and lived_seconds >= limits.RESTART_STEADY_SECONDS:
            self.forgive()
        most_ms = limits.RESTART_DELAY_READY_MS_MAX if was_ready else limits.RESTART_DELAY_MS_MAX
        # The exponent is bounded too, so that a row of a million deaths costs no big-number arithmetic.
        delay_ms = limits.RESTART_DELAY_MS_FIRST << min(self._deaths, 20)
        self._deaths += 1
        return min(delay_ms, most_ms) / 1000
