"""What a client's calls raise, and how statuses of both protocols become it.  Layer 3 (client).

The classes are those of tisfast.errors, so one `except NotFound` catches what the server says over either protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tisfast.errors import (
    AlreadyExists,
    BadRequest,
    BadResponse,
    Cancelled,
    Forbidden,
    Internal,
    NotFound,
    TisError,
    Unauthenticated,
    Unavailable,
    Unknown,
    Unsupported,
)
from tisfast.types import EXECUTED_FIELD

if TYPE_CHECKING:
    from tisfast.wire.grpc.client_session import GrpcCall

__all__ = [
    "AlreadyExists", "BadRequest", "BadResponse", "Cancelled", "ClientClosed", "ConnectFailed", "ConnectionLost",
    "Forbidden", "Internal", "NotFound", "TimedOut", "TisError", "Unauthenticated", "Unavailable", "Unknown",
    "Unsupported",
]  # fmt: skip


class TimedOut(TisError, TimeoutError):
    """The call took longer than it may; the model may have executed it."""


class ConnectFailed(Unavailable, ConnectionError):
    """No connection: nothing of the request was sent, so it may be sent again."""


class ClientClosed(Unavailable):
    """The client was closed: no call is made any more, and the model may have executed one that was under way."""


class ConnectionLost(Unavailable, ConnectionError):
    """The connection ended after the request was sent: the model may have executed it."""


OF_HTTP: Final[dict[int, type[TisError]]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    408: TimedOut,
    409: AlreadyExists,
    413: BadRequest,
    429: Unavailable,
    499: Cancelled,
    500: Internal,
    501: Unsupported,
    502: ConnectionLost,  # a proxy lost its server behind the request
    503: Unavailable,
    504: TimedOut,
}
OF_PROXY: Final = (502, 504)
"""Statuses that a proxy gives a call of either protocol when it had sent the request on."""
OF_GRPC: Final[dict[int, type[TisError]]] = {
    1: Cancelled,
    3: BadRequest,
    4: TimedOut,
    5: NotFound,
    6: AlreadyExists,
    7: Forbidden,
    9: BadRequest,
    11: BadRequest,
    12: Unsupported,
    13: Internal,
    14: Unavailable,
    16: Unauthenticated,
}


def not_sent() -> TimedOut:
    """The error of a call that is late before it has begun.  ClientCore.late says of which, and how long it had."""
    return TimedOut("nothing was sent: no time was left")


def client_closed() -> ClientClosed:
    """The error of a call that waited for its answer as the client was closed."""
    return ClientClosed("the client was closed before the answer came; the model may have executed the request")


def two_readers() -> BadRequest:
    """The error of who would take another reader's answers."""
    return BadRequest("another thread or task waits for the next answer of this stream; one at a time reads it")


def of_http(status: int, text: str) -> TisError:
    """The error of an HTTP answer."""
    return OF_HTTP.get(status, Unknown)(text or f"the server answered with HTTP status {status}", http_status=status)


def of_grpc(call: GrpcCall) -> TisError:
    """The error of a gRPC call that has ended."""
    code, trailers = call.code, call.trailers or {}
    if call.http_status in OF_PROXY and "grpc-status" not in trailers:
        return of_http(call.http_status, call.text)
    error = OF_GRPC.get(code, Unknown)(call.text or f"the server answered with gRPC status {code}", grpc_code=code)
    if EXECUTED_FIELD in trailers:
        error.facts["executed"] = True
    return error
