"""The shared-memory extension as HTTP (rows 10.01 to 10.07).  Layer 4 (front)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from tisfast.errors import BadRequest, Internal
from tisfast.front.response import JSON, Response, json_response
from tisfast.wire.json_data import load

if TYPE_CHECKING:
    from tisfast.front.service import Service

PATH: Final = r"/v2/(?P<family>system|cuda)sharedmemory(?:/region/(?P<region>[^/]+))?"
"""What all their paths start with."""
DONE: Final = Response(200, JSON, b"")
UINT64_MAX: Final = 2**64 - 1


class RegionRoutes:
    """Answers for Routes; each takes the match of PATH."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def status(self, match: re.Match[str], _body: bytes) -> Response:
        """GET .../status."""
        regions = self._service.regions
        return json_response((regions.cuda_status if _is_cuda(match) else regions.system_status)(_name(match)))

    def register(self, match: re.Match[str], body: bytes) -> Response:
        """POST .../register."""
        family, name, regions = match["family"], _name(match), self._service.regions
        regions.check_allowed()
        if not name:
            raise BadRequest(f"'region name' is necessary to register {family} shared memory region")
        request = load(body)
        fields = request if isinstance(request, dict) else {}
        if _is_cuda(match):
            regions.register_cuda(name, *_cuda_fields(fields))
        else:
            regions.register_system(name, *_system_fields(fields))
        return DONE

    def unregister(self, match: re.Match[str], _body: bytes) -> Response:
        """POST .../unregister."""
        regions = self._service.regions
        (regions.unregister_cuda if _is_cuda(match) else regions.unregister_system)(_name(match))
        return DONE


def _is_cuda(match: re.Match[str]) -> bool:
    return match["family"] == "cuda"


def _name(match: re.Match[str]) -> str:
    return unquote(match["region"] or "")


def _system_fields(request: dict[str, object]) -> tuple[str, int, int]:
    """key, offset and byte_size, checked in Triton's order."""
    if "key" not in request:
        raise BadRequest("Shared memory register request has no 'key' field")
    key = _text(request["key"])
    offset = _unsigned(request.get("offset", 0), "offset")
    if "byte_size" not in request:
        raise BadRequest("Shared memory register request has no 'byte_size' field")
    return key, offset, _unsigned(request["byte_size"], "byte_size")


def _cuda_fields(request: dict[str, object]) -> tuple[bytes, int, int]:
    """raw_handle, device_id and byte_size."""
    if "raw_handle" not in request:
        raise BadRequest("Shared memory register request has no 'raw_handle' field")
    holder = request["raw_handle"]
    encoded = _text(_member(holder if isinstance(holder, dict) else {}, "b64"))
    byte_size = _unsigned(_member(request, "byte_size"), "byte_size")
    device_id = _unsigned(_member(request, "device_id"), "device_id")
    try:
        return base64.b64decode(encoded, validate=True), device_id, byte_size
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t ({error})") from error


def _member(owner: dict[str, object], field: str) -> object:
    if field not in owner:
        raise Internal(f"attempt to access non-existing object member '{field}'")
    return owner[field]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Internal("attempt to access JSON non-string as string")
    return value


def _unsigned(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= UINT64_MAX:
        raise Internal(f"attempt to access JSON non-unsigned-integer as unsigned-integer ('{field}' is {value!r:.40})")
    return value
