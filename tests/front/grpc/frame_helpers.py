"""HTTP/2 frames byte by byte."""

from __future__ import annotations

import struct

from hyperframe.frame import (
    HeadersFrame,
)

from tests.front.grpc.helpers import ECHO

CALM = 11


def raw(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    """A frame that no library would make."""
    n = len(payload) if length is None else length
    return struct.pack(">BHBBL", n >> 16, n & 0xFFFF, kind, flags, stream) + payload


def head(client, stream=1, flags=("END_HEADERS", "END_STREAM"), fields=None):
    fields = fields or [(":method", "POST"), (":scheme", "http"), (":path", ECHO), (":authority", "x")]
    return HeadersFrame(stream, client.encoder.encode(fields), flags=flags)


async def others_are_served(server):
    client = await server.connect()
    assert (await client.ask(ECHO, b"still")).messages == [b"still"]


PSEUDO = [(":method", "POST"), (":scheme", "http"), (":path", ECHO), (":authority", "x")]
