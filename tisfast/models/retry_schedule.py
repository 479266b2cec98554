"""When what could not be loaded is tried again although nothing has changed.  Pure.  Layer 4 (models)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass
class _Wait:
    """In looks.  left: until the next attempt; last: from the attempt before it."""

    left: int = 1
    last: int = 1


class RetrySchedule:
    """Counts looks for each failed model: it is due at the first look, then after 2, 4, 8 ... up to `looks_max`.

    What a model lacks may come by itself (memory, a network, a file elsewhere); what does not come is to cost little.
    """

    def __init__(self, looks_max: int) -> None:
        self._looks_max = looks_max
        self._waits: dict[str, _Wait] = {}

    def due(self, failed: Collection[str], busy: Collection[str] = ()) -> set[str]:
        """Those of the failed ones whose turn it is at this look.  Once a look.

        A model that is not among the failed ones has recovered.  busy: not to be tried now; the look does not count for
        them.
        """
        self._waits = {name: self._waits.get(name, _Wait()) for name in failed}
        found = set()
        for name, wait in self._waits.items():
            if name in busy:
                continue
            wait.left -= 1
            if wait.left <= 0:
                wait.last = wait.left = min(2 * wait.last, self._looks_max)
                found.add(name)
        return found

    def forget(self, names: Iterable[str]) -> None:
        """They have changed: what was does not count any more."""
        for name in names:
            self._waits.pop(name, None)
