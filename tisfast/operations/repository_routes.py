"""The model-repository extension as HTTP.  Layer 4 (operations)."""

from __future__ import annotations

import re
from asyncio import Future, ensure_future
from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import unquote

import orjson

from tisfast.errors import BadRequest, Unsupported
from tisfast.operations import model_control
from tisfast.operations.http_response import JSON, Response
from tisfast.operations.route import Operation, Route, RouteRequest, done, route
from tisfast.operations.slices import in_slices
from tisfast.wire.json_data import load

if TYPE_CHECKING:
    from tisfast.operations.service import Service

_CONTROL: Final = r"/v2/repository(?:/(?P<repository>[^/]+))?/models/(?P<model>[^/]+)"

CONTROL: Final = ("400", "401", "404", "500", "501", "503")
"""Statuses of a load or unload that failed."""


class RepositoryRoutes:
    """The index, loads and unloads."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _index(self, request: RouteRequest) -> Response | Future[Response]:
        sent = load(request.body) if request.body else {}
        ready = sent.get("ready", False) if isinstance(sent, dict) else False
        if not isinstance(ready, bool):
            raise BadRequest(f"Invalid value for 'ready': expected a boolean (got {ready!r:.60})")
        look = self._service.look_around()
        return self._models(ready) if look is None else ensure_future(self._models_after(look, ready))

    async def _models_after(self, look: Awaitable[None], ready: bool) -> Response:
        await look
        found = self._models(ready)
        return found if isinstance(found, Response) else await found

    def _models(self, ready: bool) -> Response | Future[Response]:
        return in_slices(map(orjson.dumps, self._service.repository_index(ready=ready)), _list)

    def _load(self, request: RouteRequest) -> Future[Response]:
        name = _model_to_control(request.match)
        return ensure_future(done(self._loaded(name, request.body)))

    async def _loaded(self, name: str, body: bytes) -> None:
        order = await model_control.decoded(len(body), lambda: model_control.http_load_order(name, body))
        await self._service.load(order)

    def _unload(self, request: RouteRequest) -> Future[Response]:
        name = _model_to_control(request.match)
        dependents = model_control.http_unload_dependents(request.body)
        return ensure_future(done(self._service.unload(name, dependents=dependents)))

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "POST",
            r"/v2/repository(?:/[^/]+)?/index",
            _index,
            "model-repository",
            Operation(
                "Every model and version with its state",
                "RepositoryIndex",
                "RepositoryIndexRequest",
                "the index",
                False,
                errors=("400", "500"),
            ),
        ),
        route(
            "POST",
            rf"{_CONTROL}/load",
            _load,
            "model-repository",
            Operation(
                "Load a model, or load it again: answered when it is ready",
                "",
                "LoadRequest",
                "it is ready",
                False,
                errors=CONTROL,
            ),
        ),
        route(
            "POST",
            rf"{_CONTROL}/unload",
            _unload,
            "model-repository",
            Operation(
                "Unload a model: answered when it gets no new requests",
                "",
                "UnloadRequest",
                "it is not served any more",
                False,
                errors=CONTROL,
            ),
        ),
    )


def _list(pieces: list[bytes]) -> Response:
    return Response(200, JSON, b"[" + b",".join(pieces) + b"]")


def _model_to_control(match: re.Match[str]) -> str:
    """Raises Unsupported for a path that names a repository."""
    if match.group("repository") is not None:
        raise Unsupported(model_control.SINGLE_REPOSITORY)
    return unquote(match.group("model"))
