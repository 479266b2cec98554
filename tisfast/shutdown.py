"""The graceful end: connections, requests, models, under one countdown.  Layer 5 (app)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

log = logging.getLogger("tisfast.server")


class FrontFace(Protocol):
    """The face of a front that draining uses."""

    held: str
    """The name of its connections."""

    @property
    def connections(self) -> int:
        """Open client connections."""

    def finish_sequences(self, message: str) -> None:
        """Serve sequences in progress and nothing else; what else comes is refused with this message."""

    def begin_drain(self) -> None:
        """Close idle connections now, and each other one when its last answer is out."""

    @property
    def closed(self) -> asyncio.Event:
        """Set when, after begin_drain, no connection is left."""


class DrainFace(Protocol):
    """The face of the models that draining uses."""

    def sequences(self) -> int:
        """Sequences that have begun and are not over."""

    def inflight(self) -> list[tuple[str, int]]:
        """Model versions with requests queued or running, and how many."""

    @property
    def live(self) -> int:
        """Model versions that have workers."""

    async def stop(self, seconds: float) -> None:
        """Let all workers finalize and end, killing those that take longer."""


class Countdown:
    """--exit-timeout-secs, shared by all phases."""

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        """now: a monotonic clock in seconds."""
        self._now = now
        self._end = now() + seconds

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - self._now())

    @property
    def shown(self) -> int:
        """Whole seconds left, as Triton's lines count them."""
        return round(self.left)


STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"
"""Triton's answer to new requests meanwhile."""
POLL_SECONDS = 0.02
"""How often the engine is looked at for requests still in flight: its hot path counts down to no exit."""


async def drain(
    fronts: Sequence[FrontFace], models: DrainFace, countdown: Countdown, say_late: Callable[[], None] = lambda: None
) -> bool:
    """End gracefully.  The listeners are closed already.  False when the countdown ran out first.

    say_late: called then; where it ran out before the models' end, while all that was waited for is still there.
    """
    if models.sequences():  # their next requests come on connections that are open
        for front in fronts:
            front.finish_sequences(STOPPING)
        await _until(lambda: not models.sequences(), countdown, lambda: _say_sequences(models, countdown))
    for front in fronts:
        front.begin_drain()
    await _connections_end(fronts, countdown)
    log.info("Waiting for in-flight requests to complete.")
    await _until(lambda: not models.inflight(), countdown, lambda: _say_inflight(models, countdown), at_once=True)
    log.info("All models are stopped, unloading models")
    log.info("Timeout %d: Found %d live models and 0 in-flight non-inference requests", countdown.shown, models.live)
    in_time = countdown.left > 0
    if not in_time:
        say_late()
    await models.stop(countdown.left)
    if in_time and not countdown.left:
        say_late()
    return in_time and countdown.left > 0


async def _connections_end(fronts: Sequence[FrontFace], countdown: Countdown) -> None:
    """Wait until the last connection has gone or the countdown's end, saying once a second what is waited for; and, as
    Triton does, at once what there was to wait for."""
    _say_connections(fronts, countdown)
    pending = {asyncio.ensure_future(front.closed.wait()) for front in fronts}
    while pending:
        _, pending = await asyncio.wait(pending, timeout=min(1.0, countdown.left) if _connections(fronts) else None)
        if pending and _connections(fronts):
            _say_connections(fronts, countdown)
        if countdown.left == 0:
            break
    for waiter in pending:
        waiter.cancel()


async def _until(
    over: Callable[[], bool], countdown: Countdown, say: Callable[[], None], *, at_once: bool = False
) -> None:
    """Wait until `over` or the countdown's end, saying once a second what is waited for."""
    said = countdown.left + 1
    if over() and at_once:
        say()
    while not over() and countdown.left > 0:
        if said - countdown.left >= 1:
            said = countdown.left
            say()
        await asyncio.sleep(min(POLL_SECONDS, countdown.left))


def _connections(fronts: Sequence[FrontFace]) -> int:
    return sum(front.connections for front in fronts)


def _say_connections(fronts: Sequence[FrontFace], countdown: Countdown) -> None:
    for front in fronts:
        if front.connections:
            log.info("Timeout %d: Found %d %s", countdown.shown, front.connections, front.held)


def _say_sequences(models: DrainFace, countdown: Countdown) -> None:
    log.info("Timeout %d: Found %d sequences in progress", countdown.shown, models.sequences())


def _say_inflight(models: DrainFace, countdown: Countdown) -> None:
    found = models.inflight()
    text = f"Timeout {countdown.shown}: Found {len(found)} model versions that have in-flight inferences"
    log.info("%s", text)
    for name, count in found:
        log.info("Model '%s' has %d in-flight inferences", name, count)


async def first(wanted: Awaitable[object], stop: asyncio.Event) -> bool:
    """Await `wanted` unless `stop` is set first; then cancel it.  True when it was done."""
    task = asyncio.ensure_future(wanted)
    stopper = asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopper}, return_when=asyncio.FIRST_COMPLETED)
    stopper.cancel()
    if task.done():
        task.result()
        return True
    task.cancel()
    await asyncio.wait({task})
    return False
