"""A model's own `is_ready`, asked of its workers.  Layer 4 (processes)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tisfast import limits


class ReadinessCheck:
    """Asks one worker's `is_ready`: one question at a time, whose answer all concurrent callers get.

    instance: for the reason; send: sends a control message to the worker.
    """

    def __init__(
        self,
        instance: str,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[dict[str, Any]], object],
        seconds_max: float = limits.READY_CHECK_SECONDS_MAX,
    ) -> None:
        self._seconds_max = seconds_max
        self._instance = instance
        self._loop = loop
        self._send = send
        self._number = 0
        self._said: asyncio.Future[str] | None = None  # of the question that the worker has not answered
        self._late: asyncio.TimerHandle | None = None

    def ask(self) -> asyncio.Future[str]:
        """Why the model is not ready, "" when it is.  Done after `seconds_max` at the latest."""
        if self._said is not None:  # past its time, it says so until the worker has answered
            return self._said
        self._number += 1
        self._said = self._loop.create_future()
        self._late = self._loop.call_later(self._seconds_max, self._end, self._said, self._too_late())
        self._send({"t": "is_ready", "n": self._number})
        return self._said

    def answered(self, message: dict[str, Any]) -> None:
        """The worker has."""
        said = self._said
        if said is None or message.get("n") != self._number:
            return
        self._said = None
        self._end(said, str(message.get("reason", "")))

    def close(self) -> None:
        """The worker has ended."""
        if self._said is not None:
            self._end(self._said, f"instance {self._instance} has ended")

    def _end(self, said: asyncio.Future[str], reason: str) -> None:
        if self._late is not None:
            self._late.cancel()
        if not said.done():
            said.set_result(reason)

    def _too_late(self) -> str:
        return f"is_ready() of instance {self._instance} did not answer within {self._seconds_max} s"


def asked(checks: Iterable[ReadinessCheck]) -> Awaitable[str] | None:
    """The first reason why a model is not ready, of all its instances; None when there is no worker to ask."""
    said = [check.ask() for check in checks]
    return _first(said) if said else None


async def _first(said: list[asyncio.Future[str]]) -> str:
    for each in said:
        reason = await asyncio.shield(each)
        if reason:
            return reason
    return ""
