"""The routes of the KServe endpoint, but for inference (rows 1.01 to 1.11, 6.01, 11.*).  Layer 4 (front).

One table says which path exists, for which methods, who answers, and to which category of restricted APIs it belongs.
"""

from __future__ import annotations

import re
from asyncio import Future, ensure_future
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from tisfast.errors import BadRequest, Internal, TisError, Unsupported
from tisfast.front import control, openapi, region_routes
from tisfast.front.log_settings import UnknownLogFormat
from tisfast.front.response import (
    EMPTY,
    NOT_READY,
    Handler,
    Response,
    error_response,
    http_error,
    json_response,
)
from tisfast.types import Status
from tisfast.wire.json_data import load

if TYPE_CHECKING:
    from tisfast.front.service import Service
    from tisfast.wire.head import Head

__all__ = ["ROUTES", "Handler", "Response", "Route", "Routes", "error_response"]

_MODEL: Final = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"
_ANY_MODEL: Final = r"(?:/models/(?P<model>[^/]+))?"
_CONTROL: Final = r"/v2/repository(?:/(?P<repository>[^/]+))?/models/(?P<model>[^/]+)"


class Route(NamedTuple):
    """One path.  handler: method of Routes."""

    methods: tuple[str, ...]
    pattern: re.Pattern[str]
    handler: str
    category: str


def _route(methods: str, pattern: str, handler: str, category: str) -> Route:
    return Route(tuple(methods.split()), re.compile(pattern), handler, category)


ROUTES: Final = (
    _route("GET", r"/v2/health/live", "live", "health"),
    _route("GET", r"/v2/health/ready", "ready", "health"),
    _route("GET", r"/v2", "server_metadata", "metadata"),
    _route("GET", r"/v2/models/stats", "all_statistics", "statistics"),
    _route("POST", rf"{_MODEL}/infer", "infer", "inference"),
    _route("GET", rf"{_MODEL}/ready", "model_ready", "health"),
    _route("GET", rf"{_MODEL}/config", "model_config", "model-config"),
    _route("GET", rf"{_MODEL}/stats", "model_statistics", "statistics"),
    _route("GET", r"/v2/docs", "docs", "metadata"),
    _route("GET", rf"{_MODEL}/docs", "model_docs", "metadata"),
    _route("GET", _MODEL, "model_metadata", "metadata"),
    _route("POST", r"/v2/repository(?:/[^/]+)?/index", "repository_index", "model-repository"),
    _route("POST", rf"{_CONTROL}/load", "load", "model-repository"),
    _route("POST", rf"{_CONTROL}/unload", "unload", "model-repository"),
    _route("POST", rf"{_MODEL}/generate", "infer", "inference"),
    _route("POST", rf"{_MODEL}/generate_stream", "infer", "inference"),
    _route("GET", rf"{region_routes.PATH}/status", "region_status", "shared-memory"),
    _route("POST", rf"{region_routes.PATH}/register", "region_register", "shared-memory"),
    _route("POST", rf"{region_routes.PATH}/unregister", "region_unregister", "shared-memory"),
    _route("GET", rf"/v2{_ANY_MODEL}/trace/setting", "trace_settings", "trace"),
    _route("POST", rf"/v2{_ANY_MODEL}/trace/setting", "update_trace_settings", "trace"),
    _route("GET", r"/v2/logging", "log_settings", "logging"),
    _route("POST", r"/v2/logging", "update_log_settings", "logging"),
)


def category_of(path: str) -> str:
    """The category of restricted APIs that a path belongs to, "" for a path that is not served."""
    return next((route.category for route in ROUTES if route.pattern.fullmatch(path)), "")


class Routes:
    """Answers for one server: its operations (Service) as HTTP."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._metadata = json_response(service.server_metadata())
        regions = region_routes.RegionRoutes(service)
        self._handlers: dict[str, Callable[[re.Match[str], bytes], Response | Future[Response]]] = {
            "live": self._live,
            "ready": self._ready,
            "server_metadata": self._server_metadata,
            "all_statistics": self._all_statistics,
            "infer": self._infer,
            "model_ready": self._model_ready,
            "model_config": self._model_config,
            "model_statistics": self._model_statistics,
            "model_metadata": self._model_metadata,
            "docs": self._docs,
            "model_docs": self._model_docs,
            "repository_index": self._repository_index,
            "load": self._load,
            "unload": self._unload,
            "log_settings": self._log_settings,
            "update_log_settings": self._update_log_settings,
            "trace_settings": self._trace_settings,
            "update_trace_settings": self._update_trace_settings,
            "region_status": regions.status,
            "region_register": regions.register,
            "region_unregister": regions.unregister,
        }

    def handle(self, head: Head, body: bytes) -> Response | Future[Response]:
        """Answer a request, now or later.  Never raises TisError: errors become Triton's envelope."""
        try:
            response = self._dispatch(head, body)
        except TisError as error:
            response = error_response(error.status, error.message)
        if isinstance(response, Future):
            return response
        return response if head.method != "HEAD" else response._replace(body=b"")

    def _dispatch(self, head: Head, body: bytes) -> Response | Future[Response]:
        allowed: list[str] = []
        for route in ROUTES:
            match = route.pattern.fullmatch(head.path)
            if match is None:
                continue
            if head.method not in route.methods:
                allowed += route.methods
                continue
            return self._handlers[route.handler](match, body)
        if not allowed:
            return http_error(404, "Not Found")
        allow = ("Allow", ", ".join(allowed))  # RFC 9110, 15.5.6
        return http_error(405, "Method Not Allowed")._replace(headers=(allow,))

    def _live(self, _match: re.Match[str], _body: bytes) -> Response:
        return EMPTY if self._service.live() else NOT_READY

    def _ready(self, _match: re.Match[str], _body: bytes) -> Response:
        return EMPTY if self._service.ready() else NOT_READY

    def _server_metadata(self, _match: re.Match[str], _body: bytes) -> Response:
        return self._metadata

    def _infer(self, match: re.Match[str], _body: bytes) -> Response:
        # The connection takes inferences away before routing; only what is none comes here.
        raise BadRequest(f"{match.group(0)} is not an inference request")

    def _model_ready(self, match: re.Match[str], _body: bytes) -> Response | Future[Response]:
        name, version = _model_of(match)
        self._service.model_ready(name, version)
        said = self._service.own_readiness(name, version)
        return EMPTY if said is None else ensure_future(self._checked_ready(name, version, said))

    async def _checked_ready(self, name: str, version: str, said: Awaitable[str]) -> Response:
        """Row 16.06."""
        reason = await said
        if not reason:
            return EMPTY
        error = self._service.not_ready(name, version, reason)
        return error_response(error.status, error.message)

    def _model_config(self, match: re.Match[str], _body: bytes) -> Response:
        return json_response(self._service.model_config(*_model_of(match)))

    def _model_metadata(self, match: re.Match[str], _body: bytes) -> Response:
        return json_response(self._service.model_metadata(*_model_of(match)))

    def _docs(self, _match: re.Match[str], _body: bytes) -> Response:
        return json_response(openapi.document(ROUTES, self._service.server_metadata()))

    def _model_docs(self, match: re.Match[str], _body: bytes) -> Response:
        name, version = _model_of(match)
        model = self._service.model_metadata(name, version)
        config = self._service.model_config(name, version)
        return json_response(openapi.model_document(ROUTES, self._service.server_metadata(), model, config))

    def _all_statistics(self, _match: re.Match[str], _body: bytes) -> Response:
        return json_response(self._service.statistics())

    def _model_statistics(self, match: re.Match[str], _body: bytes) -> Response:
        return json_response(self._service.statistics(*_model_of(match)))

    def _repository_index(self, _match: re.Match[str], body: bytes) -> Response | Future[Response]:
        request = load(body) if body else {}
        ready = request.get("ready", False) if isinstance(request, dict) else False
        if not isinstance(ready, bool):
            raise BadRequest(f"Invalid value for 'ready': expected a boolean (got {ready!r:.60})")
        look = self._service.look_around()
        if look is None:
            return json_response(self._service.repository_index(ready=ready))
        return ensure_future(self._index_after(look, ready))

    async def _index_after(self, look: Awaitable[None], ready: bool) -> Response:
        await look
        return json_response(self._service.repository_index(ready=ready))

    def _load(self, match: re.Match[str], body: bytes) -> Future[Response]:
        name = _model_to_control(match)
        return ensure_future(_done(self._loaded(name, body)))

    async def _loaded(self, name: str, body: bytes) -> None:
        order = await control.decoded(len(body), lambda: control.http_load_order(name, body))
        await self._service.load(order)

    def _unload(self, match: re.Match[str], body: bytes) -> Future[Response]:
        name = _model_to_control(match)
        dependents = control.http_unload_dependents(body)
        return ensure_future(_done(self._service.unload(name, dependents=dependents)))

    def _log_settings(self, _match: re.Match[str], _body: bytes) -> Response:
        return json_response(self._service.log_settings())

    def _update_log_settings(self, _match: re.Match[str], body: bytes) -> Response:
        try:
            return json_response(self._service.update_log_settings(_changes(body)))
        except UnknownLogFormat as error:  # row 5.04: Triton's answer on HTTP alone
            return error_response(Status.UNAVAILABLE, error.message)

    def _trace_settings(self, match: re.Match[str], _body: bytes) -> Response:
        return json_response(self._service.trace_settings(_named(match)))

    def _update_trace_settings(self, match: re.Match[str], body: bytes) -> Response:
        model = _named(match)
        self._service.trace_settings(model)  # an unknown model comes before a broken body
        return json_response(self._service.update_trace_settings(model, _changes(body)))


async def _done(work: Awaitable[None]) -> Response:
    """What is answered when a call is done that has nothing to tell."""
    try:
        await work
    except TisError as error:
        return error_response(error.status, error.message)
    return EMPTY


def _model_to_control(match: re.Match[str]) -> str:
    """Raises Unsupported for a path that names a repository (row 6.13)."""
    if match.group("repository") is not None:
        raise Unsupported(control.SINGLE_REPOSITORY)
    return unquote(match.group("model"))


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


def _model_of(match: re.Match[str]) -> tuple[str, str]:
    """Name and version ("" for any) in a path."""
    return unquote(match.group("model")), match.group("version") or ""
