"""The response of a route, and the one place where errors become HTTP.  Layer 4 (operations)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import orjson

from tisfast.types import EXECUTED_FIELD, STATUS_CODES, Status
from tisfast.wire.compress import CODINGS, UNSUPPORTED_CODING, compress

if TYPE_CHECKING:
    from asyncio import Future

    from tisfast.wire.head import Head

JSON: Final = "application/json"
PLAIN: Final = "text/plain"
EVENTS: Final = "text/event-stream; charset=utf-8"
BINARY: Final = "application/octet-stream"
EXECUTED: Final = ((EXECUTED_FIELD.title(), "true"),)
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class Response(NamedTuple):
    """A whole answer that is not an inference.  headers: beyond Content-Type, Content-Length and Connection."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Handler(Protocol):
    """Answers everything but inferences; never raises TisError."""

    def handle(self, head: Head, body: bytes) -> Response | Future[Response]:
        """head: of the request; body: whole, decompressed.  A Future: the answer comes later."""


EMPTY: Final = Response(200, PLAIN, b"")
NOT_READY: Final = Response(400, PLAIN, b"")


def json_response(value: object) -> Response:
    """200 with a JSON body."""
    return Response(200, JSON, orjson.dumps(value))


def http_error(http_status: int, message: str) -> Response:
    """Triton's envelope under an HTTP status of its own (404 and 405 of routing, 408 and 431 of the connection)."""
    return Response(http_status, JSON, orjson.dumps({"error": printable(message)}))


def error_response(status: Status, message: str, executed: bool = False) -> Response:
    """Triton's envelope for an error of ours.  executed: a model may have executed the request, which a 503 tells."""
    response = http_error(STATUS_CODES[status].http, message)
    if executed and status == Status.UNAVAILABLE:
        return response._replace(headers=EXECUTED)
    if message == UNSUPPORTED_CODING:  # the reply says what is
        return response._replace(headers=(("Accept-Encoding", ", ".join(CODINGS)),))
    return response


def too_large(nbytes: int, bytes_max: int) -> Response:
    """A body beyond --http-max-input-size, or beyond what a call can use."""
    return error_response(
        Status.INVALID_ARG,
        f"request body of {nbytes} bytes exceeds the maximum allowed input size of {bytes_max} bytes. "
        "Use --http-max-input-size to increase the limit for inferences.",
    )


def compressed_answer(coding: str, json: bytes, tensors: list[bytes]) -> Response:
    """An inference's answer in the client's coding; the length of its JSON is that before compression, as Triton's."""
    body = compress(coding, b"".join([json, *tensors]))
    headers = (("Content-Encoding", coding),)
    if not tensors:
        return Response(200, JSON, body, headers)
    return Response(200, BINARY, body, (*headers, ("Inference-Header-Content-Length", str(len(json)))))


def status_line(http_status: int) -> str:
    """The first line of an answer."""
    return f"HTTP/1.1 {http_status} {_REASONS.get(http_status, 'Error')}"


def head_lines(response: Response) -> bytes:
    """The HTTP head of an answer, but for its last line end and what concerns the connection."""
    lines = [
        status_line(response.status),
        f"Content-Type: {response.content_type}",
        *(f"{name}: {value}" for name, value in response.headers),
        f"Content-Length: {len(response.body)}",
    ]
    return "\r\n".join(lines).encode("latin-1", "replace")


def printable(text: str) -> str:
    """`text` without the lone surrogates that no JSON can carry (a model's message may hold them)."""
    return text.encode("utf-8", "backslashreplace").decode()
