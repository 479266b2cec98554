"""Inferences that are waited for later, of the blocking client.  Layer 3 (client)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from tisfast import limits
from tisfast.client.errors import Cancelled, ClientClosed, TimedOut, client_closed
from tisfast.client.transport import Cancel

R = TypeVar("R")


class InferFuture(Future[R]):
    """A concurrent.futures.Future; `cancel` also ends a request that is on its way, and has the server told."""

    def __init__(self) -> None:
        super().__init__()
        self.token = Cancel()
        self.taken_back = False

    def cancel(self) -> bool:
        """True: there will be no answer.  One that is on its way ends with Cancelled."""
        if super().cancel():
            return True
        if self.done():
            return False
        self.taken_back = True
        self.token.cancel()
        return True


Work = list[tuple[InferFuture[Any], Callable[[Cancel], Any]]]


class Submitter:
    """At most `concurrency` requests at one time, each in a thread; CLIENT_SUBMITTED_MAX more wait.

    `submit` blocks while there is no room, at most `seconds`.
    """

    def __init__(self, concurrency: int, seconds: float) -> None:
        self._concurrency = concurrency
        self._seconds = seconds
        self._most = concurrency + limits.CLIENT_SUBMITTED_MAX
        self._executor = ThreadPoolExecutor(concurrency, "tisfast-client")
        self._open: set[InferFuture[Any]] = set()
        self._accepted: deque[Work] = deque()  # what the threads are still to be given
        self._handing_over = False
        self._ended = False
        # Who has its lock may take it again: a signal's handler may submit, cancel and close within all of these.
        self._changed = threading.Condition()

    def anew(self) -> Submitter:
        """The same, with threads and locks of its own: in a forked child."""
        found = Submitter(self._concurrency, self._seconds)
        if self._ended:
            found.end()
        return found

    def submit(self, ask: Callable[[Cancel], R]) -> InferFuture[R]:
        """Have it asked.  Raises TimedOut when there is no room for so long as a call may take, and ClientClosed."""
        future: InferFuture[R] = InferFuture()
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended or len(self._open) < self._most, self._seconds):
                raise TimedOut(
                    f"{self._most} requests wait already, and none was answered within {self._seconds:g} seconds; "
                    "Client(..., timeout=) bounds this wait, concurrency=N sets how many are asked at one time"
                )
            if self._ended:
                raise ClientClosed("the client is closed")
            self._open.add(future)
            self._accepted.append([(future, ask)])
            self._hand_over()
        return future

    def _hand_over(self) -> None:
        """To the threads.  The executor's own locks are taken once: a signal's handler leaves its work to this loop."""
        while self._accepted and not self._handing_over:
            self._handing_over = True
            work = self._accepted.popleft()
            try:
                self._executor.submit(self._run, work)
            except RuntimeError:
                if not self._ended:
                    raise
                self._run(work)  # a signal's handler has closed the client just now, so this only says so
            finally:
                self._handing_over = False

    def _run(self, work: Work) -> None:
        """work: one, taken out: an error has all frames, and a failed future is to be freed without the collector."""
        future, ask = work.pop()
        try:
            if not future.set_running_or_notify_cancel():
                return
            if self._ended:
                future.set_exception(ClientClosed("the client was closed before the request was sent"))
                return
            try:
                result = ask(future.token)
            except BaseException as error:  # the future's reader gets it
                ended = isinstance(error, Cancelled) and self._ended and not future.taken_back
                future.set_exception(client_closed() if ended else error)
            else:
                future.set_result(result)
        finally:
            with self._changed:
                self._open.discard(future)
                self._changed.notify()
            del future, ask

    def end(self) -> None:
        """End all that was submitted; nothing is taken any more.  Does not wait."""
        with self._changed:
            first, self._ended = not self._ended, True
            self._changed.notify_all()
        for future in list(self._open):
            future.token.cancel()
        if first and not self._handing_over:  # else the executor's threads end with the executor
            self._executor.shutdown(wait=False)

    def wait(self, seconds: float) -> None:
        """Until all that was submitted has ended, or so long."""
        wait(list(self._open), seconds)
