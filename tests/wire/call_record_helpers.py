"""Call records as a worker writes them, and replies as it reads them: made from workers/WIRE.md alone."""

from __future__ import annotations

import struct

FP32, NOBODY, WAITS = 11, (1 << 64) - 1, 16
CORRELATION_TEXT = 4
REPLY_HEAD_BYTES = 16


def padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 8)


def named_tensor(name: str, shape: tuple[int, ...], dtype: int = FP32) -> bytes:
    """An entry of a signature."""
    raw = name.encode()
    return struct.pack(f"<BBHI{len(shape)}q", dtype, len(shape), len(raw), 0, *shape) + padded(raw)


def record(
    model: str,
    tensors: list[tuple],
    *,
    flags: int = WAITS,
    parent: int = 0,
    version: int = -1,
    requested: tuple[str, ...] = (),
    id: str = "",
    parameters: bytes = b"",
    correlation: int | str = 0,
    timeout: int = 0,
    trace: int = NOBODY,
) -> bytes:
    """A call record.  tensors: name, shape, (source, owner, place, bytes) of each input, and its type if not FP32."""
    name = model.encode()
    head = struct.pack("<HHIq", len(name), len(requested), 0, version) + name
    head += b"".join(struct.pack("<H", len(each.encode())) + each.encode() for each in requested)
    signature = padded(head) + b"".join(named_tensor(each, shape, *kind) for each, shape, _, *kind in tensors)
    text = correlation.encode() if isinstance(correlation, str) else b""
    fixed = struct.pack(
        "<IHHQQQQIIII", len(signature), len(tensors), flags | (CORRELATION_TEXT if text else 0), timeout,
        0 if text else correlation, parent, trace, len(id.encode()), len(parameters), len(text), 0,
    )  # fmt: skip
    places = b"".join(struct.pack("<QQQQ", *tensor[2]) for tensor in tensors)
    return fixed + signature + places + id.encode() + parameters + text


def read_reply(data: bytes) -> tuple[list[tuple[str, int, list[int], int, int]], bytes]:
    """Name, type, shape, place and bytes of each output of a reply record, and its parameters."""
    signature_bytes, count, zero, parameters_bytes, zeros = struct.unpack_from("<IHHII", data)
    assert (zero, zeros) == (0, 0)
    at, found = REPLY_HEAD_BYTES, []
    places = struct.unpack_from(f"<{2 * count}Q", data, at + signature_bytes)
    for i in range(count):
        dtype, rank, name_bytes, zero = struct.unpack_from("<BBHI", data, at)
        assert zero == 0
        shape = list(struct.unpack_from(f"<{rank}q", data, at + 8))
        at += 8 + 8 * rank
        found.append((data[at : at + name_bytes].decode(), dtype, shape, places[2 * i], places[2 * i + 1]))
        at += len(padded(data[at : at + name_bytes]))
    assert at == REPLY_HEAD_BYTES + signature_bytes
    at += 16 * count
    assert len(data) == at + parameters_bytes
    return found, data[at:]
