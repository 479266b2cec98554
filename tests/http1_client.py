"""A blocking client over the sans-io session, for tests: sockets are all that it adds."""

from __future__ import annotations

import socket
from typing import NamedTuple

from tisfast.wire.client_head import RequestHead, ResponseHead
from tisfast.wire.http1 import Http1Client

SECONDS_MAX = 60  # for a server on a busy machine
RECEIVE_BYTES = 4096


class Answer(NamedTuple):
    head: ResponseHead
    body: bytes
    interim: list[int]


class Connection:
    """One connection; requests may be sent before earlier ones are answered."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), SECONDS_MAX)
        self.session = Http1Client()
        self._host = f"{host}:{port}"
        self._events: list = []

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def head(self, method: str, target: str, *headers: tuple[str, str]) -> RequestHead:
        return RequestHead(method, target, self._host, list(headers))

    def send(self, head: RequestHead, data: bytes) -> None:
        """`data` is a whole request with this head, or its beginning."""
        self.session.sent(head)
        self.socket.sendall(data)

    def _event(self):
        while not self._events:
            data = self.socket.recv(RECEIVE_BYTES)
            self._events += self.session.receive(data) if data else [("end", None)] if self.session.closed() else []
            if not data and not self._events:
                raise ConnectionError("closed between responses")
        return self._events.pop(0)

    def interim(self) -> int:
        """The status of the response below 200 that comes next."""
        kind, head = self._event()
        assert kind == "head" and head.status < 200, head.status
        return head.status

    def read(self) -> Answer:
        """The next response, and those below 200 before it."""
        interim, body = [], b""
        while True:
            kind, value = self._event()
            if kind == "head" and value.status < 200:
                interim.append(value.status)
            elif kind == "head":
                head = value
            elif kind == "data":
                body += value
            else:
                return Answer(head, body, interim)

    def ask(self, method: str, target: str, body: bytes | None = None, *headers: tuple[str, str]) -> Answer:
        """One request and its response."""
        head = self.head(method, target, *headers)
        self.send(head, head.without_body() if body is None else head.with_body(len(body)) + body)
        return self.read()
