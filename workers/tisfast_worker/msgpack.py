"""The part of msgpack that control messages use: nil, bool, integers, float64, str, bin, array, map.  No I/O."""

import struct

from tisfast_worker import limits


class MsgpackError(ValueError):
    """Bytes that are not one message of ours, or a value that has no place in one."""


def encode(value):
    """Bytes of one value.  Raises MsgpackError for types and sizes outside the subset."""
    out = []
    _encode(value, out, 0)
    return b"".join(out)


def decode(data):
    """The value in `data`, all of it.  Raises MsgpackError when short, long, nested too deep or of a foreign type."""
    try:
        value, end = _decode(data, 0, 0)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MsgpackError(f"message ends early or holds bad text: {error}") from None
    if end != len(data):
        raise MsgpackError("%s bytes after the message" % (len(data) - end))
    return value


def _encode(value, out, depth):
    if depth > limits.MSGPACK_DEPTH_MAX:
        raise MsgpackError(f"nested deeper than {limits.MSGPACK_DEPTH_MAX}")
    if value is None:
        out.append(b"\xc0")
    elif isinstance(value, bool):
        out.append(b"\xc3" if value else b"\xc2")
    elif isinstance(value, int):
        out.append(_int(value))
    elif isinstance(value, float):
        out.append(struct.pack(">Bd", 0xCB, value))
    elif isinstance(value, str):
        raw = value.encode("utf-8", "replace")
        out.append(_head(len(raw), 0xA0, 31, (0xD9, 0xDA, 0xDB)))
        out.append(raw)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        out.append(_head(len(value), None, -1, (0xC4, 0xC5, 0xC6)))
        out.append(bytes(value))
    elif isinstance(value, (list, tuple)):
        out.append(_head(len(value), 0x90, 15, (None, 0xDC, 0xDD)))
        for item in value:
            _encode(item, out, depth + 1)
    elif isinstance(value, dict):
        out.append(_head(len(value), 0x80, 15, (None, 0xDE, 0xDF)))
        for key, item in value.items():
            _encode(key, out, depth + 1)
            _encode(item, out, depth + 1)
    else:
        raise MsgpackError(f"no place for a {type(value).__name__} in a control message")


def _int(value):
    if -32 <= value < 128:
        return struct.pack(">b", value)
    signs = ((0xD0, "b", 7), (0xD1, "h", 15), (0xD2, "i", 31), (0xD3, "q", 63))
    naturals = ((0xCC, "B", 8), (0xCD, "H", 16), (0xCE, "I", 32), (0xCF, "Q", 64))
    for tag, code, bits in signs if value < 0 else naturals:
        if -(1 << bits) <= value < 1 << bits:
            return struct.pack(">B" + code, tag, value)
    raise MsgpackError(f"integer {value} does not fit 64 bits")


def _head(size, fix, fix_max, tags):
    if size <= fix_max:
        return bytes([fix | size])
    for tag, code, bits in zip(tags, "BHI", (8, 16, 32)):
        if tag is not None and size < 1 << bits:
            return struct.pack(">B" + code, tag, size)
    raise MsgpackError(f"{size} elements are too many")


_SCALARS = {
    **{0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"},
    **{0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"},
}
_SIZED = {
    **{0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I"), 0xD9: ("str", ">B"), 0xDA: ("str", ">H")},
    **{0xDB: ("str", ">I"), 0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I")},
}


def _decode(data, at, depth):
    if depth > limits.MSGPACK_DEPTH_MAX:
        raise MsgpackError(f"nested deeper than {limits.MSGPACK_DEPTH_MAX}")
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag < 0xC0:
        kind = "map" if tag < 0x90 else "array" if tag < 0xA0 else "str"
        return _body(data, at, kind, tag & (31 if kind == "str" else 15), depth)
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag in _SCALARS:
        code = _SCALARS[tag]
        return struct.unpack_from(code, data, at)[0], at + struct.calcsize(code)
    if tag in _SIZED:
        kind, code = _SIZED[tag]
        return _body(data, at + struct.calcsize(code), kind, struct.unpack_from(code, data, at)[0], depth)
    raise MsgpackError(f"type byte 0x{tag:02x} is outside the subset")


def _body(data, at, kind, size, depth):
    # Every element takes a byte at least, so a lying size is caught before anything is allocated for it.
    if size * (2 if kind == "map" else 1) > len(data) - at:
        raise MsgpackError(f"{kind} of {size} is longer than the message")
    if kind in ("str", "bin"):
        raw = bytes(data[at : at + size])
        return (raw.decode() if kind == "str" else raw), at + size
    if kind == "array":
        items = []
        for _ in range(size):
            item, at = _decode(data, at, depth + 1)
            items.append(item)
        return items, at
    table = {}
    for _ in range(size):
        key, at = _decode(data, at, depth + 1)
        if not isinstance(key, (str, int)):
            raise MsgpackError(f"a map's key must be a string or an integer, got {type(key).__name__}")
        table[key], at = _decode(data, at, depth + 1)
    return table, at
