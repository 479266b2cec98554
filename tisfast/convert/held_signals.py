"""Signals that end a program, obeyed once what must be whole is written.  Layer 5 (convert)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_signals() -> Iterator[None]:
    """What comes meanwhile is obeyed at the end: each once, whatever another one raises.

    Of the main thread: no other one is interrupted.
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
        with ExitStack() as last:  # each of it, though a handler raises as soon as it is there again
            for number in reversed(dict.fromkeys(came)):
                last.callback(signal.raise_signal, number)
            for each, handler in held.items():
                last.callback(signal.signal, each, handler)
