"""Ctrl-C, SIGTERM and SIGHUP, from before anything is changed until all is as it was.  Layer 5 (analyze)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from tisfast.bench.measure import Stop
from tisfast.standard_streams import say

T = TypeVar("T")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ABANDON_SECONDS: Final = 10.0
"""In which a call that was abandoned ends, before its thread is left to itself."""

LONG_SECONDS: Final = 15.0
"""From when on it is said what is waited for."""


class Interrupted(Exception):
    """Somebody wants the end: what was measured is the result."""


class Doing:
    """Says what is done where it takes long: behind LONG_SECONDS, and each time that it has taken twice as long."""

    def __init__(self, subject: str) -> None:
        self._subject, self._now = subject, ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True, name="tells what takes long")

    def __call__(self, what: str) -> None:
        """From now on it does this."""
        self._now = what

    def __enter__(self) -> Doing:
        """From now on its time counts."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """It is done."""
        self._done.set()
        self._thread.join()

    def _tell(self) -> None:
        waited, more = 0.0, LONG_SECONDS
        while not self._done.wait(more):
            waited += more
            more = waited
            say(f"  {self._subject}: {self._now}; it has taken {waited:g} s until now")


class Ending:
    """What the signals ask for.

    The first one has `stop` say so, which the bench core looks at, and ends what `wait_for` waits for.  Within a
    `section` there is a number of signals that it bears; one more raises KeyboardInterrupt, once.  Outside of sections
    nothing is raised: what is begun there is short, and has to be done.
    """

    def __init__(self) -> None:
        self.stop = Stop()
        self._bears: int | None = None
        self._told = ""
        self._ended: Callable[[], None] = lambda: None

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Until its end signals come here.  SIGHUP stays ignored where it is: nohup says that a run goes on."""
        numbers = [each for each in SIGNALS if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def section(self, told: str, bears: int) -> Iterator[None]:
        """What may be broken off.  told: to whoever sends a signal that it bears."""
        self._told, self._bears = told, bears
        try:
            yield
        finally:
            self._bears = None

    def wait_for(self, call: Callable[[], T], abandon: Callable[[], None]) -> T:
        """What a call gives that may take long.

        abandon: has it end.  Raises Interrupted as soon as the end is wanted.
        """
        answers: SimpleQueue[Callable[[], T]] = SimpleQueue()  # which may be put to by a signal's handler
        thread = threading.Thread(target=lambda: answers.put(_answer(call)), daemon=True, name="waited for")
        self._ended = lambda: answers.put(_interrupted)
        whole = False
        try:
            if self.stop.requested:
                raise Interrupted
            thread.start()
            answer = answers.get()
            whole = answer is not _interrupted  # it has given or raised something, though its thread may live a moment
        finally:
            self._ended = lambda: None
            if not whole and thread.is_alive():
                abandon()
                thread.join(ABANDON_SECONDS)
        return answer()

    def _signal(self, number: int, _: Any) -> None:
        self.stop.requested = True
        self._ended()
        if self._bears is None:
            say("What was measured is being written.", error=True)
        elif self._bears > 0:
            self._bears -= 1
            say(f"Interrupt signal ({number}) received.\n{self._told}", error=True)
        else:
            self._bears = None
            raise KeyboardInterrupt


def _answer(call: Callable[[], T]) -> Callable[[], T]:
    """Gives what the call has given, or raises what it has raised."""
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 - whoever waits for it has it
        return _raising(error)
    return lambda: value


def _raising(error: BaseException) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again


def _interrupted() -> Any:
    raise Interrupted
