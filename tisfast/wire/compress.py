"""gzip and deflate of bodies, with bounds, and the choice among them.  Layer 2 (wire)."""

from __future__ import annotations

import re
import zlib
from typing import Final

from tisfast.errors import BadRequest, Internal, Unsupported
from tisfast.limits import GZIP_MEMBERS_MAX

CODINGS: Final = ("gzip", "deflate")
INPUT_SIZE_HINT: Final = " Use --http-max-input-size to increase the limit."
UNSUPPORTED_CODING: Final = "Unsupported compression type"
_WINDOW: Final = {"gzip": 31, "deflate": 15}  # zlib's wbits: gzip framing, zlib framing
_ITEM: Final = re.compile("[^,]+")
_STEP_BYTES: Final = 64 * 1024
"""Input per call: what a call leaves over is copied, so feeding all at once would cost its square in gzip members."""
_LEVEL: Final = 1
"""Fastest: answers are compressed while the client waits, and level 6 costs three times as much for a few percent."""


class TooLong(BadRequest):
    """A body that expands beyond what was allowed."""


def check_coding(coding: str) -> None:
    """Raises Unsupported for a Content-Encoding that is not served; "" (identity) is."""
    if coding and coding not in CODINGS:
        raise Unsupported(UNSUPPORTED_CODING)


def decompress(coding: str, data: bytes | bytearray | memoryview, bytes_max: int, hint: str = INPUT_SIZE_HINT) -> bytes:
    """Expand a whole body.

    bytes_max: most bytes of the result; expansion stops there, whatever the body claims; hint: how to raise it.
    Several gzip members are one body.  Raises BadRequest for a result beyond bytes_max and for bytes that are not in
    that coding or end early.
    """
    check_coding(coding)
    parts: list[bytes] = []
    room = bytes_max
    expander = zlib.decompressobj(_WINDOW[coding])
    members = 1
    for start in range(0, len(data), _STEP_BYTES):
        rest: bytes | memoryview = memoryview(data)[start : start + _STEP_BYTES]
        while len(rest):
            if expander.eof:
                if coding != "gzip" or bytes(rest[:1]) != b"\x1f":  # Triton too lets junk behind the data pass
                    return b"".join(parts)
                members += 1
                if members > GZIP_MEMBERS_MAX:
                    raise BadRequest(f"request body has more than {GZIP_MEMBERS_MAX} gzip members")
                expander = zlib.decompressobj(_WINDOW[coding])
            part = _expand(expander, rest, room + 1, coding)
            room -= len(part)
            if room < 0:
                raise TooLong(f"Decompressed data size exceeds the maximum allowed value of {bytes_max} bytes.{hint}")
            parts.append(part)
            rest = expander.unused_data
    if not expander.eof:
        raise BadRequest(f"request body in {coding} format ends before its data does ({len(data)} bytes received)")
    return b"".join(parts)


def beginning(coding: str, data: bytes, bytes_max: int) -> bytes:
    """At most so many bytes of what the body expands to.  Raises BadRequest as `decompress` does."""
    check_coding(coding)
    return _expand(zlib.decompressobj(_WINDOW[coding]), data[:_STEP_BYTES], bytes_max, coding)


def _expand(expander: zlib._Decompress, data: bytes | memoryview, bytes_max: int, coding: str) -> bytes:
    try:
        return expander.decompress(data, bytes_max)
    except zlib.error as error:
        raise BadRequest(f"request body is not in the {coding} format its Content-Encoding says: {error}") from None


def compress(coding: str, *parts: bytes | bytearray | memoryview) -> bytes:
    """A body, of one part or several, in one of CODINGS."""
    if coding not in CODINGS:
        raise Internal(f"no such coding: {coding!r}")
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[coding])
    return b"".join([*map(compressor.compress, parts), compressor.flush()])


def choose(accept_encoding: str) -> str:
    """The client's best coding by an Accept-Encoding text: highest q, the first of equals; "" for identity."""
    best, best_weight = "", 0.0
    for item in _ITEM.finditer(accept_encoding):  # one at a time: a list of them takes twelve times their bytes
        coding, _, parameter = item[0].strip(" ").partition(";")
        name, _, value = parameter.strip(" ").partition("=")
        if coding not in ("identity", *CODINGS):
            continue
        try:
            weight = float(value) if name == "q" else 1.0
        except ValueError:
            continue
        if weight > best_weight:
            best, best_weight = coding, weight
    return "" if best == "identity" else best
