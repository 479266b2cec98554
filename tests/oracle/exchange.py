"""Send bytes over one connection and read the answers: a client that can lie, unlike the real ones."""

from __future__ import annotations

import http.client
import socket
from typing import Any, Final, NamedTuple, cast

ANSWER_SECONDS_MAX: Final = 8  # then it is silence


class Request(NamedTuple):
    """One request.  `raw`, when set, goes out as it is; `half_close` ends our side of the connection after it."""

    method: str = "GET"
    target: str = "/v2"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    raw: bytes = b""
    half_close: bool = False

    def encoded(self) -> bytes:
        """The bytes on the wire: Host and Content-Length are added unless given."""
        if self.raw:
            return self.raw
        names = {name.lower() for name, _ in self.headers}
        headers = list(self.headers) if "host" in names else [("Host", "localhost"), *self.headers]
        if (self.body or self.method == "POST") and not names & {"content-length", "transfer-encoding"}:
            headers.append(("Content-Length", str(len(self.body))))
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


class Answer(NamedTuple):
    """What came back.  status 0: no answer, and `body` says how it ended."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Shared:
    """One reader for all answers of a connection: what was read ahead of one answer is the next one's beginning."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")

    def makefile(self, *_: object) -> _Shared:
        """What HTTPResponse takes for a socket's file."""
        return self

    def close(self) -> None:
        """Not yet: HTTPResponse closes after each answer."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Connection:
    """One client connection to a port of this machine, as a context manager."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("localhost", port), timeout=ANSWER_SECONDS_MAX)
        self._shared = _Shared(self._socket)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._shared._file.close()
        self._socket.close()

    def send(self, request: Request) -> None:
        """All its bytes; a server that hangs up in the middle is heard of by `receive`."""
        try:
            self._socket.sendall(request.encoded())
            if request.half_close:
                self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def receive(self, method: str) -> Answer:
        """The next answer on this connection."""
        answer = http.client.HTTPResponse(cast(socket.socket, self._shared), method=method)
        try:
            answer.begin()
            body = answer.read()
        except TimeoutError:
            return Answer(0, {}, b"silence")
        except (OSError, http.client.HTTPException):
            return Answer(0, {}, b"closed")
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)


def converse(port: int, requests: tuple[Request, ...], pipelined: bool = False) -> list[Answer]:
    """Send requests over one connection, each after the last one's answer or all at once, and collect the answers."""
    with Connection(port) as connection:
        if pipelined:
            for request in requests:
                connection.send(request)
            return [connection.receive(request.method) for request in requests]
        answers = []
        for request in requests:
            connection.send(request)
            answers.append(connection.receive(request.method))
        return answers
