"""The shared-memory extension as HTTP.  Layer 4 (operations)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from asyncio import Future, ensure_future
from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import unquote

from tisfast.errors import BadRequest, Internal
from tisfast.operations.http_response import JSON, Response, json_response
from tisfast.operations.regions import NO_HANDLE
from tisfast.operations.route import Operation, Route, RouteRequest, done, route
from tisfast.wire.json_data import load

if TYPE_CHECKING:
    from tisfast.operations.service import Service

_PATH: Final = r"/v2/(?P<family>system|cuda)sharedmemory(?:/region/(?P<region>[^/]+))?"
DONE: Final = Response(200, JSON, b"")
UINT64_MAX: Final = 2**64 - 1
INT64_MIN: Final = -(2**63)
NO_NUMBER: Final = "attempt to access JSON non-unsigned-integer as unsigned-integer"
BASE64: Final = "a string, the handle's 64 bytes in base64"
GPU_NUMBER: Final = "the number of the GPU that has the memory: 0 for the first one that the server sees"


class RegionRoutes:
    """Shared memory that clients registered."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _status(self, request: RouteRequest) -> Response:
        regions = self._service.regions
        status = regions.cuda_status if _is_cuda(request.match) else regions.system_status
        return json_response(status(_name(request.match)))

    def _register(self, request: RouteRequest) -> Response | Future[Response]:
        family, name, regions = request.match["family"], _name(request.match), self._service.regions
        regions.check_may_register(name, family)
        sent = load(request.body)
        fields = sent if isinstance(sent, dict) else {}
        if _is_cuda(request.match):
            return ensure_future(_answered(regions.register_cuda(name, *_cuda_fields(fields, name))))
        regions.register_system(name, *_system_fields(fields, name))
        return DONE

    def _unregister(self, request: RouteRequest) -> Response | Future[Response]:
        regions = self._service.regions
        if _is_cuda(request.match):
            return ensure_future(_answered(regions.unregister_cuda(_name(request.match))))
        regions.unregister_system(_name(request.match))
        return DONE

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "GET",
            rf"{_PATH}/status",
            _status,
            "shared-memory",
            Operation("Which regions are registered", result="all of them, or the one", errors=("400", "404", "501")),
        ),
        route(
            "POST",
            rf"{_PATH}/register",
            _register,
            "shared-memory",
            Operation(
                "Register a region of shared memory",
                "",
                "RegionRequest",
                "it is registered",
                errors=("400", "500", "501", "503"),
            ),
        ),
        route(
            "POST",
            rf"{_PATH}/unregister",
            _unregister,
            "shared-memory",
            Operation(
                "Forget one region, or all",
                "",
                result="no new request uses it, and GPU memory is closed",
                errors=("400", "500", "501", "503"),
            ),
        ),
    )


async def _answered(work: Awaitable[None]) -> Response:
    """Wait until something is registered, or closed."""
    response = await done(work)
    return DONE if response.status == DONE.status else response


def _is_cuda(match: re.Match[str]) -> bool:
    return match["family"] == "cuda"


def _name(match: re.Match[str]) -> str:
    return unquote(match["region"] or "")


def _system_fields(request: dict[str, object], name: str) -> tuple[str, int, int]:
    """key, offset and byte_size, checked in Triton's order.  name: of the region, for errors."""
    key = _text(_field(request, "key", name), "key", name)
    offset = _integer(request.get("offset", 0), "offset", name)
    return key, offset, _integer(_field(request, "byte_size", name), "byte_size", name)


def _cuda_fields(request: dict[str, object], name: str) -> tuple[bytes, int, int]:
    """raw_handle, device_id and byte_size.  name: of the region, for errors."""
    holder = _field(request, "raw_handle", name)
    fields = holder if isinstance(holder, dict) else {}
    encoded = _text(_member(fields, "b64", name, f": 'raw_handle' is {{\"b64\": {BASE64}}}"), "b64", name, BASE64)
    byte_size = _integer(_member(request, "byte_size", name, ": give the region's size in bytes"), "byte_size", name)
    device_id = _gpu(_member(request, "device_id", name, f": give {GPU_NUMBER}"), name)
    try:
        return base64.b64decode(encoded, validate=True), device_id, byte_size
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"{NO_HANDLE} (region '{name:.60}': {error})") from error


def _field(request: dict[str, object], field: str, name: str) -> object:
    if field not in request:
        raise BadRequest(f"Shared memory register request has no '{field}' field (region '{name:.60}')")
    return request[field]


def _member(owner: dict[str, object], field: str, name: str, remedy: str = "") -> object:
    if field not in owner:
        raise Internal(f"attempt to access non-existing object member '{field}' (region '{name:.60}'{remedy})")
    return owner[field]


def _text(value: object, field: str, name: str, meant: str = "a string") -> str:
    if not isinstance(value, str):
        raise Internal(f"attempt to access JSON non-string as string ({_said(value, field, name)}, not {meant})")
    return value


def _integer(value: object, field: str, name: str) -> int:
    return _within(value, field, name, 0, f"a whole number from 0 to {UINT64_MAX}")


def _gpu(value: object, name: str) -> int:
    """Who knows the GPUs refuses whole numbers that are none of theirs."""
    return _within(value, "device_id", name, INT64_MIN, GPU_NUMBER)


def _within(value: object, field: str, name: str, least: int, meant: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= UINT64_MAX:
        quoted = ", without quotes" if isinstance(value, str) and value.isdecimal() else ""
        raise Internal(f"{NO_NUMBER} ({_said(value, field, name)}, not {meant}{quoted})")
    return value


def _said(value: object, field: str, name: str) -> str:
    return f"region '{name:.60}': '{field}' is {json.dumps(value):.40}"
