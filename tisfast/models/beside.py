"""What threads do beside the event loop for requests and answers: each GPU's own make its copies, shared ones long
copies of host memory.  Layer 4 (models).

A GPU may hang, and a thread with it for ever.  Whoever waits is told in its time, and what the thread has stays until
it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tisfast import limits
from tisfast.errors import TisError, Unavailable
from tisfast.native.cuda_lanes import HANGS
from tisfast.types import Status

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tisfast.executor import DaemonExecutor, Lane

log = logging.getLogger("tisfast.models")
Failure: TypeAlias = "tuple[int, str] | tuple[()]"
Told: TypeAlias = "Failure | str"
Step: TypeAlias = "tuple[Lane | None, Callable[[], Failure], str]"
Done: TypeAlias = "Callable[[Told], None]"


def beside(
    copies: DaemonExecutor, steps: Sequence[Step], kept: object, done: Done, seconds: float = 0
) -> CopyOrder:
    """Carry out the steps, one at least, in threads, one after the other, and call `done` on the loop.

    More in engine/caching_runtime.pxd.  copies: threads for what is no GPU's.
    """
    order = CopyOrder(copies, steps, kept, done, seconds)
    order.begin()
    return order


class CopyOrder:
    """The steps of one request or answer that are still to be done.

    Once somebody was told, or it was cancelled, no further step begins, and what no thread works on is let go of.
    """

    def __init__(
        self, copies: DaemonExecutor, steps: Sequence[Step], kept: object, done: Done, seconds: float
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._copies, self._steps, self._kept = copies, list(steps), kept
        self._done: Done | None = done
        self._seconds, self._until = seconds, self._loop.time() + seconds if seconds else 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._current: Future[Failure] | None = None

    def begin(self) -> None:
        """Begin the first step.  Calls nobody."""
        lane, work, what = self._steps.pop(0)
        try:
            if lane is None and self._copies.waiting >= limits.COPIES_WAITING_MAX:
                raise Unavailable(
                    f"{limits.COPIES_WAITING_MAX} long copies wait to be made, which is the limit; retry later"
                )
            self._current = self._copies.submit(work) if lane is None else lane.start(work, what)
        except TisError as error:
            self._loop.call_soon(self._tell, (error.status, f"{what}: {error.message}" if what else error.message))
            return
        self._watch(lane, what)
        # It keeps this object, and with it what the work is about.
        asyncio.wrap_future(self._current, loop=self._loop).add_done_callback(self._heard)

    def cancel(self) -> None:
        """Nobody is told."""
        self._done = None
        self._tell(())

    def _watch(self, lane: Lane | None, what: str) -> None:
        now = self._loop.time()
        late = now + limits.GPU_COPY_SECONDS_MAX if lane is not None else 0.0
        if self._until and (not late or self._until < late):
            whose = "a long copy of host memory" if lane is None else f"{lane.whose} to copy {what}"
            hangs = "" if lane is None else f": it hangs, or is busy with others' work. {HANGS}"
            text = f"waited {self._seconds:g} s, which is its timeout, in front of the queue for {whose}{hangs}"
            self._timer = self._loop.call_at(self._until, self._tell, text)
        elif lane is not None:
            text = (
                f"{what}: {lane.whose} has not made a copy within {limits.GPU_COPY_SECONDS_MAX} s: it hangs, or is "
                f"busy with others' work. {HANGS}"
            )
            self._timer = self._loop.call_at(late, self._tell, (int(Status.UNAVAILABLE), text))

    def _heard(self, future: asyncio.Future[Failure]) -> None:
        self._current = None
        if self._done is None:  # told already, in its time
            self._kept = None
            return
        self._rest()
        error = future.exception()
        if error is not None:
            log.error("a copy beside the loop failed in what is our fault", exc_info=error)
            self._tell((int(Status.INTERNAL), f"unexpected {type(error).__name__} in the server; see its log"))
        elif (failure := future.result()) or not self._steps:
            self._tell(failure)
        else:
            self.begin()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, failure: Told) -> None:
        done, self._done = self._done, None
        self._rest()
        self._steps.clear()
        if self._current is None or self._current.cancel():
            self._kept = None
        if done is not None:
            done(failure)
