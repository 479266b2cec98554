"""HTTP/2 frames, byte by byte."""

from __future__ import annotations

import struct
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, ACK = 0x1, 0x4, 0x8, 0x1
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
REFUSED_STREAM, CANCEL, CALM = 7, 8, 11
STREAMS_MAX, INITIAL_WINDOW, ENABLE_PUSH = 3, 4, 2


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int | None = None) -> bytes:
    """A frame; length: another than it has."""
    n = len(payload) if length is None else length
    return struct.pack(">BHBBL", n >> 16, n & 0xFFFF, kind, flags, stream) + payload


def reset(stream: int, code: int = CANCEL) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">L", code))


def window(stream: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">L", more))


def entries(**values: int) -> bytes:
    """A SETTINGS frame of these: streams_max, initial_window."""
    names = {"enable_push": ENABLE_PUSH, "streams_max": STREAMS_MAX, "initial_window": INITIAL_WINDOW}
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", names[name], value) for name, value in values.items()))


class Seen(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frames_in(data: bytes) -> list[Seen]:
    """What a side has sent, without the client's preface."""
    data = data.removeprefix(PREFACE)
    found = []
    while data:
        high, low, kind, flags, stream = struct.unpack_from(">BHBBL", data)
        n = high << 16 | low
        assert len(data) >= 9 + n, "a frame was sent in part"
        found.append(Seen(kind, flags, stream, data[9 : 9 + n]))
        data = data[9 + n :]
    return found


def of_kind(data: bytes, kind: int) -> list[Seen]:
    return [seen for seen in frames_in(data) if seen.kind == kind]
