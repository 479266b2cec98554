"""Executors for blocking work beside the event loop, which holds up no end of the process.  Layer 0.

Python waits at its end for every thread of its own pools, so one read that hangs in a dead network would keep a server
alive that has long done all there was to do: here the threads are daemons, which end with the process.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from tisfast.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")


def deadline(seconds: float) -> Callable[[], float]:
    """Gives what is left of so many seconds from now on, to a tenth, as errors say it; never below 0."""
    until = time.monotonic() + seconds
    return lambda: round(max(until - time.monotonic(), 0), 1)


class Overdue(Unavailable):
    """The work was waited for in vain; it has begun, and may end later."""


class _Order(Future[Any]):
    """Work that waits for a thread.  Who cancels it lets go of what it refers to, there and then."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.work: Callable[[], Any] | None = work

    def cancel(self) -> bool:
        """False: it has begun."""
        if not super().cancel():
            return False
        self.work = None
        return True

    def carry_out(self) -> None:
        """In the thread."""
        if not self.set_running_or_notify_cancel():
            return
        work, self.work = self.work, None
        assert work is not None  # it was not cancelled
        try:
            result = work()
        except BaseException as error:  # handed to the waiter, whatever it is
            self.set_exception(error)
            del self  # which holds the error, whose traceback holds this frame: what the work held would stay with them
        else:
            self.set_result(result)


class _LaneOrder(_Order):
    """When it is cancelled, it leaves the lane, too."""

    def __init__(self, waiting: deque[_LaneOrder], work: Callable[[], Any], what: str, *, is_awaited: bool) -> None:
        super().__init__(work)
        self._waiting, self.what = waiting, what
        self.is_awaited = is_awaited

    def cancel(self) -> bool:
        """See _Order.  Nobody waits for it any more, whatever this gives."""
        self.is_awaited = False
        if not super().cancel():
            return False
        with suppress(ValueError):  # the thread was about to begin it
            self._waiting.remove(self)
        return True


class DaemonExecutor(Executor):
    """At most `most` threads, each started when there is work and none is idle.  `submit` of one thread only."""

    def __init__(self, most: int, name: str = "tisfast-blocking") -> None:
        self._most, self._name = most, name
        self._started = 0
        self._idle = threading.Semaphore(0)
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()

    @property
    def waiting(self) -> int:
        """How much work no thread has begun."""
        return self._orders.qsize()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` in a thread: a future of what it returns or raises."""
        order = _Order(functools.partial(fn, *args, **kwargs))
        self._orders.put(order)
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return order

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the work that was submitted.  Waits for none of them, whatever `wait` says."""
        for _ in range(self._started):
            self._orders.put(None)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            order.carry_out()
            del order  # what it holds, such as leases, goes with it and not with the next one
            self._idle.release()


class Lane(Executor):
    """One thread of its own for work that may hang, such as calls of a driver.

    most: how much may wait; whose: what it may hang at, for errors; remedy: what to do then; watch: says when it takes
    long.  `post` from any thread, `submit` too where nobody watches, the rest on a loop.  Finalisers post in the middle
    of anything, so nothing here takes a lock of Python's.  what: the work is for, as `doing` gives it.
    """

    def __init__(self, most: int, name: str, whose: str, remedy: str, watch: Watch | None = None) -> None:
        self.whose = whose
        self._most, self._remedy, self._watch = most, remedy, watch
        self._orders: deque[_LaneOrder] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._is_rung = False
        self._begun = self._ended = 0
        self._current: _LaneOrder | None = None
        self._since = 0.0
        if watch is not None:
            watch.lanes.append(self)
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        """Whether its thread has ever been at work."""
        return self._begun > 0

    @property
    def doing(self) -> str:
        """What the work is for that its thread is at, asked for by that work; "" where nobody has said so."""
        return self._what if threading.current_thread() is self._thread else ""

    @property
    def _what(self) -> str:
        current = self._current
        return "" if current is None else current.what

    @property
    def is_busy(self) -> bool:
        """Whether its thread is at work, so that it may hang."""
        return self._begun != self._ended

    @property
    def current(self) -> tuple[int, float]:
        """Which piece of work its thread is at, counted from 1, and since when (time.monotonic); 0: none."""
        number, since = self._begun, self._since
        return (number, since) if self.is_busy else (0, 0.0)

    @property
    def seconds(self) -> float:
        """How long its thread has been at the same piece of work."""
        number, since = self.current
        return time.monotonic() - since if number else 0.0

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for the work that its thread is at."""
        current = self._current
        return current is not None and current.is_awaited

    @property
    def awaited(self) -> int:
        """How much of its work somebody waits for, begun or not."""
        return sum(each.is_awaited for each in list(self._orders)) + self.is_awaited

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` in the thread, after all that came before, unless it is cancelled first.  Raises Unavailable."""
        return self.start(functools.partial(fn, *args, **kwargs))

    def start(self, work: Callable[[], T], what: str = "") -> Future[T]:
        """The same, of work that says what it is for."""
        if len(self._orders) >= self._most:
            raise Unavailable(
                f"{self._most} calls wait for {self.whose}, which is the limit: it hangs, or is busy with others' "
                f"work. {self._remedy}"
            )
        if self._watch is not None:
            self._watch.begin()
        return self._put(work, what, is_awaited=True)

    def post(self, work: Callable[[], Any], what: str = "") -> None:
        """The same for what gives memory back: never refused, and also while garbage is collected."""
        self._put(work, what)

    def passed(self) -> asyncio.Future[None]:
        """Done when all that came before is.  Never refused.  On a loop."""
        return asyncio.wrap_future(self._put(_nothing))

    def at(self, number: int) -> str:
        """What this piece of work (`current`) is for; "" where nobody has said so, or its thread has ended it."""
        what = self._what
        return what if self._begun == number else ""

    def when_ended(self, number: int, tell: Callable[[object], None]) -> None:
        """Call this, with something, when its thread has ended this piece of work (`current`), in whatever thread."""
        order = self._current
        if order is not None and self._begun == number:
            order.add_done_callback(tell)
        else:
            tell(None)

    async def call(  # noqa: PLR0913 - of one call
        self, work: Callable[[], T], seconds: float, kept: object = None, *, of: float = 0.0, what: str = ""
    ) -> T:
        """What `work` returns.  Raises Unavailable after so many seconds, or Overdue, and what comes of it is dropped.

        kept: stays until the thread has let go of it, whoever waits; of: the seconds that these are the rest of.
        """
        source = self.start(work, what)
        future = asyncio.wrap_future(source)
        future.add_done_callback(functools.partial(_heard, kept))
        try:
            if not (await asyncio.wait({future}, timeout=seconds))[0]:
                kind = Unavailable if source.cancel() else Overdue
                rest = f", which were left of {of:g} s" if of > seconds else ""
                raise kind(
                    f"{self.whose} has not done a call within {seconds:g} s{rest}: it hangs, or is busy with others' "
                    f"work. {self._remedy}"
                )
            return future.result()
        finally:
            source.cancel()  # nobody waits for it any more
            del source, future, kept  # the traceback of an error would keep what comes of it later

    def _put(self, work: Callable[[], T], what: str = "", *, is_awaited: bool = False) -> Future[T]:
        order = _LaneOrder(self._orders, work, what, is_awaited=is_awaited)
        self._orders.append(order)
        if not self._is_rung:
            self._is_rung = True
            self._bell.put(None)
        return order

    def _work(self) -> None:
        while True:
            self._bell.get()
            self._is_rung = False
            while self._orders:
                self._since = time.monotonic()
                self._begun += 1
                self._next()
                self._ended += 1

    def _next(self) -> None:
        with suppress(IndexError):  # it was cancelled at this moment
            self._current = self._orders.popleft()
            self._current.carry_out()
        self._current = None


class Watch:
    """Says once that lanes do not end a piece of work that somebody waits behind, and when they have.  On a loop.

    seconds: how long that takes; say: told one lane that has not ended any for so long, what that work is for, and how
    much other work of all of them somebody waits for; over: told, in any thread, the lane that has ended that, what it
    was for, and how many seconds it took.  It looks only while somebody waits.
    """

    def __init__(
        self, seconds: float, say: Callable[[Lane, str, int], None], over: Callable[[Lane, str, float], None]
    ) -> None:
        self.lanes: list[Lane] = []
        self._seconds, self._say, self._over = seconds, say, over
        self._timer: asyncio.TimerHandle | None = None
        self._told: tuple[Lane, int] | None = None  # with the number of its piece of work

    def begin(self) -> None:
        """Somebody is about to wait for one of them."""
        if self._timer is None:
            self._look_in(self._seconds)

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        awaited = [lane for lane in self.lanes if lane.awaited]
        if not awaited:
            return
        now, soonest = time.monotonic(), self._seconds
        for lane in awaited:
            number, since = lane.current
            left = since + self._seconds - now
            if number and left > 0:
                soonest = min(soonest, left)
            elif number and (self._told is None or self._told[0].current[0] != self._told[1]):
                self._told, what = (lane, number), lane.at(number)
                self._say(lane, what, sum(each.awaited for each in awaited) - lane.is_awaited)
                lane.when_ended(number, functools.partial(self._tell_over, lane, what, since))
        self._look_in(soonest)

    def _tell_over(self, lane: Lane, what: str, since: float, _ended: object) -> None:
        self._over(lane, what, time.monotonic() - since)


def _nothing() -> None:
    """What was before it has been done."""


def _heard(kept: object, future: asyncio.Future[Any]) -> None:
    """It has ended, whether or not somebody still waits."""
    del kept
    if not future.cancelled():
        future.exception()
