"""Load and unload calls: what their parameters say, and how many there may be at a time.  Layer 4 (operations).

Parameters are looked at before the control mode, as Triton does.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final, Protocol, TypeVar

from tisfast import limits, tuning
from tisfast.errors import BadRequest, Internal, Unavailable
from tisfast.repo.load_override import LoadOrder
from tisfast.wire.json_data import load as load_json

T = TypeVar("T")
FILE: Final = "file:"
NOT_EXPLICIT: Final = "explicit model load / unload is not allowed if polling is enabled"
"""The error of a server whose models are not controlled by calls."""
SINGLE_REPOSITORY: Final = "'repository_name' specification is not supported"
KNOWN: Final = "load parameters are config, file:VERSION/NAME and force"
NOTHING_CUT: Final[Mapping[bytes, memoryview]] = {}
GRPC_KINDS: Final = {"config": "string_param", "force": "bool_param"}


class ModelControl(Protocol):
    """The face of models.lifecycle, which loads and unloads."""

    @property
    def explicit(self) -> bool:
        """Whether models follow calls at all."""

    async def load(self, order: LoadOrder) -> None:
        """Until the model serves as the order says.  Raises TisError with Triton's words."""

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """Until no new request finds the model; those that it has are still answered."""


class ControlCalls:
    """The load and unload calls of one server.  control: None on a server without model control."""

    def __init__(self, control: ModelControl | None) -> None:
        self._control = control
        self._calls = 0
        self._bytes = 0

    async def load(self, order: LoadOrder) -> None:
        """Until the model is ready.  Raises TisError."""
        control = self._checked()
        check_name(order.name)
        nbytes = sum(map(len, order.files.values()))
        if self._bytes + nbytes > limits.CONTROL_BYTES_MAX:
            raise Unavailable(
                f"the files of load calls that are not answered exceed {limits.CONTROL_BYTES_MAX} bytes together; "
                "retry later"
            )
        self._bytes += nbytes
        self._calls += 1
        try:
            await control.load(order)
        finally:
            self._calls -= 1
            self._bytes -= nbytes

    async def unload(self, name: str, *, dependents: bool) -> None:
        """Until the model gets no new requests.  Names are not checked: there is nothing to find on the disk."""
        control = self._checked()
        self._calls += 1
        try:
            await control.unload(name, dependents=dependents)
        finally:
            self._calls -= 1

    def _checked(self) -> ModelControl:
        if self._control is None or not self._control.explicit:
            raise Unavailable(NOT_EXPLICIT)
        if self._calls >= limits.CONTROL_CALLS_MAX:
            raise Unavailable(f"{limits.CONTROL_CALLS_MAX} load and unload calls are not answered yet; retry later")
        return self._control


def check_name(name: str) -> None:
    """A model is named as its folder is.  Raises BadRequest."""
    if not name.strip():
        raise BadRequest("Model name cannot be empty or consist of white space")
    if name.strip(". ") == "" or any(sign in name for sign in "/\\\0"):
        raise BadRequest(f"Model name '{name:.300}' must not contain path traversal characters")


async def decoded(nbytes: int, decode: Callable[[], T]) -> T:
    """Run `decode`, in a thread when the bytes are so many that the loop would stand still."""
    if nbytes <= tuning.CONTROL_INLINE_BYTES_MAX:
        return decode()
    return await asyncio.get_running_loop().run_in_executor(None, decode)


# ---- HTTP


def http_load_order(name: str, body: bytes) -> LoadOrder:
    """Raises BadRequest or Internal, with Triton's status."""
    text, cut = _without_files(body)
    files: dict[str, bytes] = {}
    found: dict[str, Any] = {}
    for key, value in _parameters(text).items():
        if key == "force":
            found[key] = _boolean(key, value)
        elif not isinstance(value, str):
            raise Internal(f"attempt to access JSON non-string as string (load parameter '{key:.300}')")
        elif key == "config":
            found[key] = _text(cut[value]) if value in cut else value
        elif key.startswith(FILE):
            files[key.removeprefix(FILE)] = _from_base64(key, cut.get(value) or value.encode())
        else:
            raise Internal(
                f"unexpected error on creating Triton parameter: unrecognized load parameter '{key:.300}'; {KNOWN}"
            )
    return LoadOrder(name, files=files, **found)


def http_unload_dependents(body: bytes) -> bool:
    """Whether the steps of an ensemble go with it.  Raises BadRequest or Internal."""
    parameters = _parameters(body)
    unknown = next((key for key in parameters if key != "unload_dependents"), None)
    if unknown is not None:
        raise BadRequest(f"unrecognized unload parameter '{unknown:.300}'.")
    try:
        return _boolean("unload_dependents", parameters.get("unload_dependents", False))
    except Internal as error:
        raise Internal(f"Unable to parse 'unload_dependents': {error.message}") from None


def _parameters(body: bytes) -> dict[str, Any]:
    try:
        value = load_json(body) if body else {}
    except BadRequest as error:
        raise Internal(error.message) from None
    if not isinstance(value, dict):
        return {}  # as Triton, which looks for a member and finds none
    unknown = next((key for key in value if key != "parameters"), None)
    if unknown is not None:
        raise BadRequest(f"unknown member '{unknown:.300}' in the body: what a call asks for stands in 'parameters'")
    parameters = value.get("parameters", {})
    if not isinstance(parameters, dict):
        raise Internal("attempt to get members for non-object")
    return parameters


def _boolean(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Internal(f"attempt to access JSON non-boolean as boolean ({key})")
    return value


def _without_files(body: bytes) -> tuple[bytes, dict[str, memoryview]]:
    """JSON in which each very long string is a short one, and what it stands for.

    A parser that is given megabytes lets no other thread run until it is done; looking for quotes can be done in steps.
    """
    if len(body) <= tuning.CONTROL_CUT_BYTES:
        return body, {}
    mark, at = os.urandom(8).hex(), 0
    cut: dict[str, memoryview] = {}
    pieces: list[bytes] = []
    for start, end in _strings(body):
        if end - start > tuning.CONTROL_CUT_BYTES and _find(body, b"\\", start, end) < 0:
            name = f"{mark}-{len(cut)}"  # which nobody else can have written
            cut[name] = memoryview(body)[start:end]
            pieces += [body[at:start], name.encode()]
            at = end
    return b"".join([*pieces, body[at:]]), cut


def _strings(body: bytes) -> Iterator[tuple[int, int]]:
    """Where the insides of JSON's strings are, up to one that does not end."""
    start = _find(body, b'"') + 1
    while start > 0:
        end = _find(body, b'"', start)
        while end > 0 and _is_escaped(body, end):
            end = _find(body, b'"', end + 1)
        if end < 0:
            return
        yield start, end
        start = _find(body, b'"', end + 1) + 1


def _find(body: bytes, sign: bytes, start: int = 0, end: int | None = None) -> int:
    """`bytes.find` of one byte, in steps, between which the loop does other work."""
    last = len(body) if end is None else end
    for at in range(start, last, tuning.CONTROL_DECODE_BYTES):
        place = body.find(sign, at, min(at + tuning.CONTROL_DECODE_BYTES, last))
        if place >= 0:
            return place
    return -1


def _is_escaped(body: bytes, at: int) -> bool:
    first = at
    while body[first - 1] == ord("\\"):
        first -= 1
    return (at - first) % 2 == 1


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        where = f"{error.reason} at {error.start} of a string"
        raise Internal(f"failed to parse the request JSON buffer: {where}") from None


def _from_base64(key: str, value: bytes | memoryview) -> bytes:
    """In steps: no other thread runs during one of them."""
    step = tuning.CONTROL_DECODE_BYTES
    decoded = BytesIO()  # whose bytes need not be copied in the end
    try:
        if len(value) <= step:
            return base64.b64decode(bytes(value).replace(b"\n", b""), validate=True)
        for at in range(0, len(value), step):
            part = bytes(value[at : at + step])
            if b"=" in part and at + step < len(value):
                raise ValueError("'=' in the middle")
            decoded.write(base64.b64decode(part, validate=True))
    except ValueError as error:
        raise BadRequest(f"Invalid file parameter '{key:.300}': its value is no base64: {error}") from None
    return decoded.getvalue()


# ---- gRPC


def grpc_load_order(
    name: str, parameters: Mapping[str, Any], cut: Mapping[bytes, memoryview] = NOTHING_CUT
) -> LoadOrder:
    """parameters: a map of ModelRepositoryParameter; cut: what the short contents in it stand for.

    Raises BadRequest.
    """
    files: dict[str, bytes | memoryview] = {}
    found: dict[str, Any] = {}
    for key, parameter in sorted(parameters.items()):
        kind = "bytes_param" if key.startswith(FILE) else GRPC_KINDS.get(key, "")
        if not kind:
            raise BadRequest(f"unrecognized load parameter '{key:.300}'.")
        if parameter.WhichOneof("parameter_choice") != kind:
            raise BadRequest(f"invalid value type for load parameter '{key:.300}', expected {kind}.")
        if kind == "bytes_param":
            content = parameter.bytes_param
            files[key.removeprefix(FILE)] = cut.get(content, content)
        else:
            found[key] = getattr(parameter, kind)
    return LoadOrder(name, files=files, **found)


def grpc_unload_dependents(parameters: Mapping[str, Any]) -> bool:
    """http_unload_dependents for gRPC.  Raises BadRequest."""
    dependents = False
    for key, parameter in sorted(parameters.items()):
        if key != "unload_dependents":
            raise BadRequest(f"unrecognized unload parameter '{key:.300}'.")
        if parameter.WhichOneof("parameter_choice") != "bool_param":
            raise BadRequest(f"invalid value type for '{key}' parameter, expected bool_param.")
        dependents = parameter.bool_param
    return dependents
