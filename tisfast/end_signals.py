"""Signals that end the server, and reach all its processes where others say so: it alone ends these.  Layer 0."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

END_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})


@contextmanager
def blocked_signals(numbers: Collection[signal.Signals] = END_SIGNALS) -> Iterator[None]:
    """What comes to this thread meanwhile is obeyed at the end.

    What is started meanwhile has them blocked, until it has said what it does with them and unblocks them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # handlers of what has come may raise here
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_end_signals() -> None:
    """In the process that was started so."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
