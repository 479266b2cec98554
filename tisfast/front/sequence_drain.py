"""Admission while the server waits for the sequences in progress to end: only their requests are taken.  Layer 4
(front)."""

from __future__ import annotations

from typing import Final, Protocol

from tisfast.errors import Unavailable

SEQUENCE_START: Final = 1


class RequestFace(Protocol):
    """The facts of a request that decide."""

    correlation: int | str
    sequence_flags: int


def check_continues(request: RequestFace, message: str) -> None:
    """Raises Unavailable with this message unless the request goes on with a sequence that has begun."""
    if not request.correlation or request.sequence_flags & SEQUENCE_START:
        raise Unavailable(message)
