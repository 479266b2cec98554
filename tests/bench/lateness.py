"""For how long this machine lets a thread wait that is ready: it adds so much to what is measured on it."""

from __future__ import annotations

import threading
from time import monotonic

LOOK_SECONDS = 0.002


class Lateness:
    """seconds: the longest wait while it was entered."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Lateness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        before = monotonic()
        while not self._over.wait(LOOK_SECONDS):
            now = monotonic()
            self.seconds = max(self.seconds, now - before - LOOK_SECONDS)
            before = now
