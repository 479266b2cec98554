"""Messages of inferences, and what came of them."""

from __future__ import annotations

import struct


def field(number: int, data: bytes) -> bytes:
    n, length = len(data), b""
    while n >= 0x80:
        length += bytes([n & 0x7F | 0x80])
        n >>= 7
    return bytes([number << 3 | 2]) + length + bytes([n]) + data


def request(values=4, model=b"m", id=b"", late=False):
    """ModelInferRequest; late: the model is named behind everything else."""
    shape = struct.pack("B", values) if values < 128 else bytes([values & 0x7F | 0x80, values >> 7])
    tensor = field(5, field(1, b"I") + field(2, b"FP32") + field(3, shape))
    raw = field(7, struct.pack(f"<{values}f", *range(values)))
    name = field(1, model)
    return tensor + field(3, id) + raw + name if late else name + field(3, id) + tensor + raw


def asked(server):
    """Requests that the engine has."""
    return server.runtime.queued + sum(map(len, server.link.dispatched))
