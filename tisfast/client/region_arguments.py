"""What the calls that register memory are given: held against one rule, whatever the protocol.  Layer 3 (client).

Else HTTP's JSON and protobuf take different things: one reads "0" as a number, the other does not.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.types import HANDLE_BYTES

_UINT64_MAX: Final = (1 << 64) - 1


def system_region(name: Any, key: Any, nbytes: Any, offset: Any) -> dict[str, Any]:
    """Fields of the call that registers shared memory.  Raises BadRequest."""
    whose = _registered(name)
    found = _text(f"{whose}key", key, "the name of a file in /dev/shm, such as '/tensors'")
    return {
        "name": _exact(name),
        "key": found,
        "offset": _whole(f"{whose}offset", offset, 0, _UINT64_MAX, "where in the file the region begins, in bytes"),
        "byte_size": _size(whose, nbytes),
    }


def cuda_region(name: Any, handle: Any, nbytes: Any, device: Any) -> dict[str, Any]:
    """Fields of the call that registers GPU memory.  Raises BadRequest."""
    whose = _registered(name)
    number = "the GPU's number, counted from 0 as CUDA counts in the server's process"
    return {
        "name": _exact(name),
        "raw_handle": _handle(whose, handle),
        "device_id": _whole(f"{whose}device", device, 0, limits.DEVICE_MAX, number),
        "byte_size": _size(whose, nbytes),
    }


def unregistered(name: Any) -> dict[str, Any]:
    """Fields of a call that unregisters a region, "" for all.  Raises BadRequest.

    None is no name: who has lost it does not mean all.
    """
    found = _text("name", name, 'the name that was registered, or "" for all regions')
    return {"name": found} if found else {}


def _registered(name: Any) -> str:
    """How errors name the region."""
    found = _text("name", name, "a name of the region that no other one has")
    if not found:
        raise BadRequest("name='' names no region: give it a name, by which requests and unregistering find it")
    return f"region '{found:.60}': "


def _text(field: str, value: Any, remedy: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"{field}={_said(value)} must be a text: {remedy}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{field}={ascii(value):.60} cannot be sent ({error}): give {remedy}") from None
    return _exact(value)


def _exact(value: str) -> str:
    """Of texts of a class of their own, such as numpy's, the plain text."""
    return str.__str__(value)


def _size(whose: str, nbytes: Any) -> int:
    return _whole(f"{whose}nbytes", nbytes, 1, _UINT64_MAX, "the size of the region in bytes")


def _whole(field: str, value: Any, least: int, most: int, remedy: str) -> int:
    """An int, also one of numpy's, as sizes often are."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise BadRequest(f"{field}={_said(value)} must be an int from {least} to {most}: {remedy}")
    return int(value)


def _said(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except Exception:  # it is a user's; an int may have too many digits
        return f"a {type(value).__name__}"


def _handle(whose: str, handle: Any) -> bytes:
    found = bytes(handle) if isinstance(handle, bytes | bytearray | memoryview) else None
    if found is None or len(found) != HANDLE_BYTES:
        has = f"a {type(handle).__name__}" if found is None else f"{len(found)} bytes"
        raise BadRequest(
            f"{whose}handle={_said(handle)} is {has}; it must be bytes, a bytearray or a memoryview of {HANDLE_BYTES} "
            "bytes: what cudaIpcGetMemHandle gives. tritonclient's get_raw_handle gives that in base64: give "
            "base64.b64decode(...) of it"
        )
    return found
