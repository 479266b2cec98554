"""Routes of the trace and the logging extension.  Layer 4 (operations)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

from tisfast.errors import BadRequest, Internal
from tisfast.operations.http_response import Response, error_response, json_response
from tisfast.operations.log_settings import UnknownLogFormat
from tisfast.operations.route import Operation, Route, RouteRequest, route
from tisfast.types import Status
from tisfast.wire.json_data import load

if TYPE_CHECKING:
    from tisfast.operations.service import Service

_TRACE: Final = r"/v2(?:/models/(?P<model>[^/]+))?/trace/setting"
_LOGGING: Final = r"/v2/logging"


class LogSettingRoutes:
    """Routes of the log settings."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _show(self, _request: RouteRequest) -> Response:
        return json_response(self._service.log_settings())

    def _update(self, request: RouteRequest) -> Response:
        try:
            return json_response(self._service.update_log_settings(_changes(request.body)))
        except UnknownLogFormat as error:  # Triton's answer on HTTP alone
            return error_response(Status.UNAVAILABLE, error.message)

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route("GET", _LOGGING, _show, "logging", Operation("What is logged", result="all settings", errors=("400",))),
        route(
            "POST",
            _LOGGING,
            _update,
            "logging",
            Operation("Change what is logged", result="all settings", errors=("400", "500", "503")),
        ),
    )


class TraceSettingRoutes:
    """Routes of the trace settings, of all models or of one."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _show(self, request: RouteRequest) -> Response:
        return json_response(self._service.trace_settings(_named(request.match)))

    def _update(self, request: RouteRequest) -> Response:
        model = _named(request.match)
        self._service.trace_settings(model)  # an unknown model comes before a broken body
        return json_response(self._service.update_trace_settings(model, _changes(request.body)))

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "GET",
            _TRACE,
            _show,
            "trace",
            Operation("Which requests are traced", result="all settings", errors=("400", "404")),
        ),
        route(
            "POST",
            _TRACE,
            _update,
            "trace",
            Operation("Change which requests are traced", result="all settings", errors=("400", "404", "500")),
        ),
    )


def _named(match: re.Match[str]) -> str:
    """The model in a path that may do without one."""
    return unquote(match.group("model") or "")


def _changes(body: bytes) -> dict[str, Any]:
    """Settings in a body.  Triton takes any other JSON value for an object without members.  Raises Internal."""
    try:
        value = load(body)
    except BadRequest as error:
        raise Internal(error.message) from None
    return value if isinstance(value, dict) else {}
