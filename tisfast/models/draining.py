"""Copies that get no new requests: drained, then stopped.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from tisfast import limits
from tisfast.models.served_ensemble import ServedEnsemble
from tisfast.models.served_model import ServedModel

log = logging.getLogger("tisfast.models")


class Drainable(Protocol):
    """A part that can be drained: a model version, or an instance of one."""

    @property
    def title(self) -> str:
        """NAME version N."""

    @property
    def outstanding(self) -> int:
        """Requests that are being received, are queued or execute."""

    async def stop(self, seconds: float, message: str) -> None:
        """Refuse what is left with `message`, then end the workers within `seconds`."""


def _nobody() -> None:
    """The end is not waited for."""


class DrainingCopies:
    """All parts that drain now.

    A copy is stopped when the last request that has it is answered; an ensemble's steps after the ensemble.  The engine
    is looked at for that, as at exit: its hot path counts down to no end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: dict[Drainable, asyncio.Task[None]] = {}

    @property
    def models(self) -> list[ServedModel | ServedEnsemble]:
        """The model versions that are not stopped yet."""
        return [part for part in self._tasks if isinstance(part, (ServedModel, ServedEnsemble))]

    def begin(self, served: Drainable, message: str, gone: Callable[[], None] = _nobody) -> None:
        """Let go of a copy that no new request can find.

        message: for requests that outlast LEAVING_SECONDS_MAX; gone: called when the copy is stopped.
        """
        task = self._loop.create_task(self._leave(served, message, gone), name=f"leaving {served.title}")
        self._tasks[served] = task
        task.add_done_callback(self._left)

    async def finish(self, seconds: float, message: str) -> None:
        """Stop everything now, within `seconds`."""
        left = list(self._tasks.items())
        for _, task in left:
            task.cancel()
        await asyncio.gather(*(task for _, task in left), return_exceptions=True)
        await asyncio.gather(*(served.stop(seconds, message) for served, _ in left))

    async def _leave(self, served: Drainable, message: str, gone: Callable[[], None]) -> None:
        if not await self._drained(served):
            log.warning(
                "%s still has %d requests %g s after it was replaced or unloaded: they are refused",
                served.title, served.outstanding, limits.LEAVING_SECONDS_MAX,
            )  # fmt: skip
        await served.stop(limits.WORKER_STOP_SECONDS_MAX, message)
        gone()

    async def _drained(self, served: Drainable) -> bool:
        end = self._loop.time() + limits.LEAVING_SECONDS_MAX
        while served.outstanding or self._is_used(served):
            if self._loop.time() >= end:
                return False
            await asyncio.sleep(limits.LEAVING_LOOK_SECONDS)
        return True

    def _is_used(self, served: Drainable) -> bool:
        return isinstance(served, (ServedModel, ServedEnsemble)) and any(
            served.runtime in other.uses for other in self.models
        )

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks = {served: each for served, each in self._tasks.items() if each is not task}
        if not task.cancelled() and task.exception() is not None:
            log.critical("a copy could not be stopped", exc_info=task.exception())
