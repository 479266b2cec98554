"""grpc.health.v1: whether the server is ready, once or whenever that changes.  Layer 4 (operations).

The server has one state, so the name of a service in a question makes no difference, as with Triton.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tisfast import limits
from tisfast.descriptors import message_class
from tisfast.errors import BadRequest, Internal

REQUEST = "grpc.health.v1.HealthCheckRequest"
RESPONSE = "grpc.health.v1.HealthCheckResponse"


class Health:
    """The service.  ready: the server's state; loop: where watchers are told of changes."""

    def __init__(self, ready: Callable[[], bool], loop: asyncio.AbstractEventLoop) -> None:
        self._ready = ready
        self._loop = loop
        self._watches: set[Watch] = set()
        self._timer: asyncio.TimerHandle | None = None

    def check(self, message: bytes, _metadata: Mapping[str, str]) -> bytes:
        """The method Check."""
        check_request(message)
        return encoded(self._ready())

    def watch(self, send: Callable[[bytes], None]) -> Watch:
        """One call of the method Watch."""
        return Watch(self, send)

    def ready(self) -> bool:
        """The state now."""
        return self._ready()

    def add(self, watch: Watch) -> None:
        """Tell it of changes from now on.  Readiness has no event, so it is polled while there is a watcher."""
        self._watches.add(watch)
        if self._timer is None:
            self._timer = self._loop.call_later(limits.HEALTH_WATCH_SECONDS, self._look)

    def remove(self, watch: Watch) -> None:
        """Its call is over."""
        self._watches.discard(watch)
        if not self._watches and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        ready = self._ready()
        self._timer = self._loop.call_later(limits.HEALTH_WATCH_SECONDS, self._look)
        for watch in list(self._watches):
            watch.tell(ready)


class Watch:
    """One watcher."""

    def __init__(self, health: Health, send: Callable[[bytes], None]) -> None:
        self._health = health
        self._send = send
        self._told: bool | None = None

    def on_message(self, message: bytes) -> list[bytes]:
        """The question, which comes once."""
        check_request(message)
        if self._told is not None:
            raise BadRequest("Watch takes one request")
        self._told = self._health.ready()
        self._health.add(self)
        return [encoded(self._told)]

    def on_end(self) -> None:
        """The call is over."""
        self._health.remove(self)

    def tell(self, ready: bool) -> None:
        """The state now; sent when it is another than the last."""
        if ready != self._told:
            self._told = ready
            self._send(encoded(ready))


def check_request(message: bytes) -> None:
    """Raises Internal for what is no HealthCheckRequest."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - protobuf is imported on first use

    try:
        message_class(REQUEST).FromString(message)
    except DecodeError as error:
        raise Internal(f"Unable to parse request ({len(message)} bytes are no {REQUEST})") from error


def encoded(ready: bool) -> bytes:
    """A HealthCheckResponse."""
    answer: bytes = message_class(RESPONSE)(status="SERVING" if ready else "NOT_SERVING").SerializeToString()
    return answer
