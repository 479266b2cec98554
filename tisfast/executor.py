"""Executors for blocking work beside the event loop, which holds up no end of the process.  Layer 0.

Python waits at its end for every thread of its own pools, so one read that hangs in a dead network would keep a server
alive that has long done all there was to do: here the threads are daemons, which end with the process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonExecutor(Executor):
    """At most `most` threads, each started when there is work and none is idle.  `submit` of one thread only."""

    def __init__(self, most: int, name: str = "tisfast-blocking") -> None:
        self._most, self._name = most, name
        self._started = 0
        self._idle = threading.Semaphore(0)
        self._orders: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    @property
    def waiting(self) -> int:
        """How much work no thread has begun."""
        return self._orders.qsize()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` in a thread: a future of what it returns or raises."""
        future: Future[T] = Future()
        self._orders.put((future, functools.partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the work that was submitted.  Waits for none of them, whatever `wait` says."""
        for _ in range(self._started):
            self._orders.put(None)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            _carry_out(*order)
            del order  # what it holds, such as leases, goes with it and not with the next one
            self._idle.release()


def _carry_out(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # handed to the waiter, whatever it is
        future.set_exception(error)
        del future  # which holds the error, whose traceback holds this frame: what the work held would stay with them
    else:
        future.set_result(result)
