"""Server-sent events, from pieces of a body as they arrive.  No sockets, no clocks.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tisfast.errors import BadResponse

EVENT_BYTES_MAX: Final = 4 << 20
"""Of one event: more is kept of none."""


class Event(NamedTuple):
    """text: all of its lines; data: of those, what follows `data:`."""

    text: bytes
    data: bytes


class EventStream:
    """Events end with an empty line, wherever the pieces were cut; lines end with LF, CR LF or CR."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Those that this piece completes; without data (comments that keep a connection open) they are left out.

        Raises BadResponse for an event of more than EVENT_BYTES_MAX.
        """
        text, held = self._rest + piece, b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # the next piece may begin with its LF
                text, held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, rest = text.split(b"\n\n")
        self._rest = rest + held
        if len(self._rest) > EVENT_BYTES_MAX:
            raise BadResponse(f"an event of the stream has more than {EVENT_BYTES_MAX} bytes")
        return _with_data(whole)

    def end(self) -> Iterator[Event]:
        """The body has ended: the last event may lack its empty line."""
        rest, self._rest = self._rest, b""
        return _with_data([rest])


def _with_data(texts: list[bytes]) -> Iterator[Event]:
    for text in texts:
        lines = [line[5:].removeprefix(b" ") for line in text.split(b"\n") if line.startswith(b"data:")]
        if lines:
            yield Event(text.strip(b"\r\n"), b"\n".join(lines) if len(lines) > 1 else lines[0])
