"""Inferences that are waited for later, of the blocking client.  Layer 3 (client)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from tisfast import limits
from tisfast.client.errors import ClientClosed, TimedOut
from tisfast.client.transport import Cancel

R = TypeVar("R")


class InferFuture(Future[R]):
    """A concurrent.futures.Future; `cancel` also ends a request that is on its way, and has the server told."""

    def __init__(self) -> None:
        super().__init__()
        self.token = Cancel()

    def cancel(self) -> bool:
        """True: there will be no answer.  One that is on its way ends with Cancelled."""
        if super().cancel():
            return True
        if self.done():
            return False
        self.token.cancel()
        return True


class Submitter:
    """At most `concurrency` requests at one time, each in a thread; CLIENT_SUBMITTED_MAX more wait.

    `submit` blocks while there is no room, at most `seconds`.
    """

    def __init__(self, concurrency: int, seconds: float) -> None:
        self._seconds = seconds
        self._most = concurrency + limits.CLIENT_SUBMITTED_MAX
        self._room = threading.Semaphore(self._most)
        self._executor = ThreadPoolExecutor(concurrency, "tisfast-client")
        self._open: set[InferFuture[Any]] = set()
        self._lock = threading.Lock()  # what is submitted while it ends is either refused or ended
        self._ended = False

    def submit(self, ask: Callable[[Cancel], R]) -> InferFuture[R]:
        """Have it asked.  Raises TimedOut when there is no room for so long as a call may take, and ClientClosed."""
        if not self._room.acquire(timeout=self._seconds):
            raise TimedOut(f"{self._most} requests wait already, and none was answered within {self._seconds} s")
        future: InferFuture[R] = InferFuture()
        with self._lock:
            if self._ended:
                self._room.release()
                raise ClientClosed("the client is closed")
            self._open.add(future)
            self._executor.submit(self._run, [(future, ask)])
        return future

    def _run(self, work: list[tuple[InferFuture[R], Callable[[Cancel], R]]]) -> None:
        """work: one, taken out: an error has all frames, and a failed future is to be freed without the collector."""
        future, ask = work.pop()
        try:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = ask(future.token)
            except BaseException as error:  # the future's reader gets it
                future.set_exception(error)
            else:
                future.set_result(result)
        finally:
            self._open.discard(future)
            self._room.release()
            del future, ask

    def end(self) -> None:
        """End all that was submitted; nothing is taken any more.  Does not wait."""
        with self._lock:
            self._ended = True
        for future in list(self._open):
            future.cancel()
        self._executor.shutdown(wait=False)

    def wait(self, seconds: float) -> None:
        """Until all that was submitted has ended, or so long."""
        wait(list(self._open), seconds)
