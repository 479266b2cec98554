"""An open-loop HTTP client: each request is sent when it is due, whatever became of those before it.

A latency counts from the moment at which a request was due, so what stands still while nobody asks counts for all who
would have asked.  A client that waits for one answer before it makes the next request leaves those out (coordinated
omission).
"""

from __future__ import annotations

import json
import math
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from perf.figures import RunFailed

ANSWER_SECONDS_MAX: Final = 30.0
CONNECTIONS_MAX: Final = 900
"""select() takes descriptors below 1,024."""
CONNECTIONS_READY: Final = 8
"""Opened before the first request is due."""
RECEIVE_BYTES: Final = 65536
END_OF_HEAD: Final = b"\r\n\r\n"


class Ask(NamedTuple):
    """A request: when it is due (seconds from the start) and its bytes.

    then: requests that are each due when the one before is answered, as those of a sequence are; counted: whether its
    latency is a result.
    """

    due: float
    data: bytes
    then: tuple[bytes, ...] = ()
    counted: bool = True


class Tail(NamedTuple):
    """Latencies of one run, in milliseconds."""

    p50: float
    p99: float
    longest: float


def tail(seconds: Iterable[float]) -> Tail:
    """Of all latencies of a run."""
    found = sorted(seconds)
    return Tail(*(1e3 * found[math.ceil(share * len(found)) - 1] for share in (0.50, 0.99, 1.0)))


def post(path: str, body: dict[str, Any]) -> bytes:
    """A whole request with a JSON body."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return head.encode() + END_OF_HEAD + data


def play(address: str, asks: Sequence[Ask]) -> list[float]:
    """Send all; the latencies of those that count, in seconds.  Raises RunFailed where an answer is bad or missing."""
    host, port = address.split(":")
    with _Client((host, int(port))) as client:
        return client.play(sorted(asks, key=lambda ask: ask.due))


class _Call:
    """A request on its connection."""

    def __init__(self, due: float, data: bytes, then: tuple[bytes, ...], counted: bool) -> None:
        self.due, self.data, self.then, self.counted = due, data, then, counted
        self.answer = b""


class _Client:
    """Connections, of which the one that was used last is used first, and the calls on them."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._idle: list[socket.socket] = []
        self._busy: dict[socket.socket, _Call] = {}
        self._latencies: list[float] = []

    def __enter__(self) -> _Client:
        self._idle = [self._connect() for _ in range(CONNECTIONS_READY)]
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._idle, *self._busy):
            each.close()

    def play(self, asks: Sequence[Ask]) -> list[float]:
        began = time.perf_counter()
        waiting = deque(asks)
        while waiting or self._busy:
            now = time.perf_counter()
            while waiting and began + waiting[0].due <= now:
                ask = waiting.popleft()
                self._send(_Call(began + ask.due, ask.data, ask.then, ask.counted))
            self._receive(began + waiting[0].due - time.perf_counter() if waiting else ANSWER_SECONDS_MAX)
        return self._latencies

    def _connect(self) -> socket.socket:
        try:
            found = socket.create_connection(self._address, ANSWER_SECONDS_MAX)
        except OSError as e:
            raise RunFailed(f"{self._address[0]}:{self._address[1]} takes no connection: {e}") from e
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def _send(self, call: _Call) -> None:
        if len(self._busy) == CONNECTIONS_MAX:
            raise RunFailed(f"{CONNECTIONS_MAX} requests are not answered; the server does not keep up")
        connection = self._idle.pop() if self._idle else self._connect()
        try:
            connection.sendall(call.data)
        except OSError as e:
            raise RunFailed(f"a request could not be sent: {e}") from e
        self._busy[connection] = call

    def _receive(self, seconds: float) -> None:
        readable = select.select(list(self._busy), (), (), max(seconds, 0.0))[0]
        now = time.perf_counter()
        for connection in readable:
            self._read(connection, now)
        if not readable and any(now - call.due > ANSWER_SECONDS_MAX for call in self._busy.values()):
            raise RunFailed(f"a request was not answered within {ANSWER_SECONDS_MAX:g} s")

    def _read(self, connection: socket.socket, now: float) -> None:
        call = self._busy[connection]
        try:
            data = connection.recv(RECEIVE_BYTES)
        except OSError as e:
            raise RunFailed(f"the server ended a connection: {e}") from e
        if not data:
            raise RunFailed(f"the server closed a connection after {call.answer[:200]!r}")
        call.answer += data
        if not is_whole(call.answer):
            return
        if call.counted:
            self._latencies.append(now - call.due)
        self._idle.append(connection)
        del self._busy[connection]
        if call.then:
            self._send(_Call(now, call.then[0], call.then[1:], call.counted))


def is_whole(answer: bytes) -> bool:
    """Whether all of an answer is there; raises RunFailed where it is no 200 or tells no length."""
    head, end, body = answer.partition(END_OF_HEAD)
    if not end:
        return False
    first, *fields = head.decode("latin-1").split("\r\n")
    if first.split(" ")[1:2] != ["200"]:
        raise RunFailed(f"the server answered {first}: {body[:500]!r}")
    named = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    if "content-length" in named:
        return len(body) >= int(named["content-length"])
    if named.get("transfer-encoding") == "chunked":
        return body.endswith(b"0" + END_OF_HEAD)
    raise RunFailed(f"the server's answer has no length: {head!r}")
