"""The kinds of gRPC methods, as a connection calls them.  Layer 4 (operations)."""

from __future__ import annotations

from asyncio import BaseTransport, Future
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from tisfast import limits

UnaryHandler = Callable[[bytes, Mapping[str, str]], bytes | Future[bytes]]
"""(message, metadata) to message, now or later; raises TisError."""


Guard = Callable[[Mapping[str, str], BaseTransport], None]


class UnaryMethod(NamedTuple):
    """One request, one answer.

    category: of the restricted APIs; guard: asked with the metadata before a message is received, raises TisError;
    bytes_max: of a message, also expanded.
    """

    handler: UnaryHandler
    category: str
    guard: Guard | None = None
    bytes_max: int = limits.GRPC_CALL_BYTES_MAX


class StreamCall(Protocol):
    """One call of a method that may answer many times."""

    def on_message(self, message: bytes) -> list[bytes]:
        """Answers to send now.  Raises TisError to end the call with it."""

    def on_end(self) -> None:
        """The client has ended its side, or the call is over."""


class StreamMethod(NamedTuple):
    """open: called once per call; `send` may be called later, from the loop, with further messages.

    closes: the call ends when the client's side does (reflection); otherwise only the client ends it (health Watch).
    """

    open: Callable[[Callable[[bytes], None]], StreamCall]
    category: str
    closes: bool
