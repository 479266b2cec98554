"""What a route answers, and the one place where errors become HTTP (rows 1.03, 1.04).  Layer 4 (front)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import orjson

from tisfast.types import STATUS_CODES, Status
from tisfast.wire.compress import CODINGS, UNSUPPORTED_CODING

if TYPE_CHECKING:
    from tisfast.wire.head import Head

JSON: Final = "application/json"
PLAIN: Final = "text/plain"


class Response(NamedTuple):
    """A whole answer that is not an inference.  headers: beyond Content-Type, Content-Length and Connection."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Handler(Protocol):
    """Answers everything but inferences; never raises TisError."""

    def handle(self, head: Head, body: bytes) -> Response:
        """head: of the request; body: whole, decompressed."""


EMPTY: Final = Response(200, PLAIN, b"")
NOT_READY: Final = Response(400, PLAIN, b"")


def json_response(value: object) -> Response:
    """200 with a JSON body."""
    return Response(200, JSON, orjson.dumps(value))


def http_error(http_status: int, message: str) -> Response:
    """Triton's envelope under an HTTP status of its own (404 and 405 of routing, 408 and 431 of the connection)."""
    return Response(http_status, JSON, orjson.dumps({"error": printable(message)}))


def error_response(status: Status, message: str) -> Response:
    """Triton's envelope for an error of ours."""
    response = http_error(STATUS_CODES[status].http, message)
    if message == UNSUPPORTED_CODING:  # row 1.26: the reply says what is
        return response._replace(headers=(("Accept-Encoding", ", ".join(CODINGS)),))
    return response


def printable(text: str) -> str:
    """`text` without the lone surrogates that no JSON can carry (a model's message may hold them)."""
    return text.encode("utf-8", "backslashreplace").decode()
