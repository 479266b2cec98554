"""Signals that end a program, obeyed once what must be whole is written.  Layer 5 (convert)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tisfast.end_signals import blocked_signals

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_signals() -> Iterator[None]:
    """What comes meanwhile is obeyed at the end: each once, whatever another one raises.

    Of the main thread: no other one is interrupted.  They are not blocked: what is started meanwhile would be, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {each: signal.getsignal(each) for each in SIGNALS}
    held = {each: handler for each, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for each in held:
            signal.signal(each, lambda number, _: came.append(number))
        yield
    finally:
        with blocked_signals(SIGNALS):  # else a handler that is there again may raise before all are
            for each, handler in held.items():
                signal.signal(each, handler)
            for number in dict.fromkeys(came):
                signal.raise_signal(number)
