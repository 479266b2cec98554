"""Health, metadata, configuration and statistics as HTTP.  Layer 4 (operations)."""

from __future__ import annotations

from asyncio import Future, ensure_future
from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from tisfast.errors import BadRequest
from tisfast.operations.http_response import (
    EMPTY,
    JSON,
    NOT_READY,
    Response,
    error_response,
    http_error,
    json_response,
)
from tisfast.operations.route import MODEL, Operation, Route, RouteRequest, model_of, route
from tisfast.operations.slices import in_slices

if TYPE_CHECKING:
    from tisfast.operations.service import Service

LIVE: Final = json_response({"live": True})
READY: Final = json_response({"ready": True})
"""The protocol's bodies, which KServe's SDK reads; Triton's are empty."""
INFERENCE: Final = ("400", "404", "408", "500", "501", "503")
"""Statuses of an inference that failed."""


class HealthRoutes:
    """Whether the server lives, and whether it and its models take inferences."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _live(self, _request: RouteRequest) -> Response:
        return LIVE if self._service.live() else NOT_READY

    def _ready(self, _request: RouteRequest) -> Response:
        why = self._service.why_not_ready()
        return http_error(400, why) if why else READY

    def _model_ready(self, request: RouteRequest) -> Response | Future[Response]:
        name, version = model_of(request.match)
        self._service.model_ready(name, version)
        said = self._service.own_readiness(name, version)
        return EMPTY if said is None else ensure_future(self._checked_ready(name, version, said))

    async def _checked_ready(self, name: str, version: str, said: Awaitable[str]) -> Response:
        """After the model's own `is_ready`."""
        reason = await said
        if not reason:
            return EMPTY
        error = self._service.not_ready(name, version, reason)
        return error_response(error.status, error.message)

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "GET",
            r"/v2/health/live",
            _live,
            "health",
            Operation("The server is up", "Live", result="it is up", errors=("400",)),
        ),
        route(
            "GET",
            r"/v2/health/ready",
            _ready,
            "health",
            Operation("The server takes inferences", "Ready", result="it takes them", errors=("400",)),
        ),
        route(
            "GET",
            rf"{MODEL}/ready",
            _model_ready,
            "health",
            Operation("The model takes inferences", "", result="it takes them", errors=("400", "404")),
        ),
    )


class StatisticsRoutes:
    """Counts and durations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _all(self, _request: RouteRequest) -> Response | Future[Response]:
        return in_slices(map(orjson.dumps, self._service.each_statistics()), _statistics)

    def _model(self, request: RouteRequest) -> Response | Future[Response]:
        return in_slices(map(orjson.dumps, self._service.each_statistics(*model_of(request.match))), _statistics)

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "GET",
            r"/v2/models/stats",
            _all,
            "statistics",
            Operation("Counts and durations of all models", "Statistics", result="the statistics", errors=("400",)),
        ),
        route(
            "GET",
            rf"{MODEL}/stats",
            _model,
            "statistics",
            Operation("Counts and durations of a model", "Statistics", result="the statistics", errors=("400", "404")),
        ),
    )


class InferenceRoutes:
    """Paths of inferences: the connection takes them away before routing, and only what is none comes here."""

    def __init__(self, _service: Service) -> None:
        pass

    def _refuse(self, request: RouteRequest) -> Response:
        raise BadRequest(f"{request.match.group(0)} is not an inference request")

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "POST",
            rf"{MODEL}/infer",
            _refuse,
            "inference",
            Operation("An inference", "InferResponse", "InferRequest", "the outputs", events=True, errors=INFERENCE),
        ),
        route(
            "POST",
            rf"{MODEL}/generate",
            _refuse,
            "inference",
            Operation(
                "An inference by a flat object: inputs and parameters by name",
                "Generated",
                "GenerateRequest",
                "the outputs",
                errors=INFERENCE,
            ),
        ),
        route(
            "POST",
            rf"{MODEL}/generate_stream",
            _refuse,
            "inference",
            Operation(
                "The same, each response an event",
                "",
                "GenerateRequest",
                "the responses",
                events=True,
                errors=INFERENCE,
            ),
        ),
    )


class MetadataRoutes:
    """Metadata of the server and its models."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._metadata = json_response(service.server_metadata())

    def _server(self, _request: RouteRequest) -> Response:
        return self._metadata

    def _model(self, request: RouteRequest) -> Response:
        return json_response(self._service.model_metadata(*model_of(request.match)))

    def _config(self, request: RouteRequest) -> Response:
        return json_response(self._service.model_config(*model_of(request.match)))

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "GET",
            r"/v2",
            _server,
            "metadata",
            Operation("Name, version and extensions", "ServerMetadata", result="the metadata"),
        ),
        route(
            "GET",
            rf"{MODEL}/config",
            _config,
            "model-config",
            Operation("The configuration in use", "Anything", result="the configuration", errors=("400", "404")),
        ),
        route(
            "GET",
            MODEL,
            _model,
            "metadata",
            Operation(
                "Versions, inputs and outputs of a model", "ModelMetadata", result="the metadata", errors=("400", "404")
            ),
        ),
    )


def _statistics(pieces: list[bytes]) -> Response:
    return Response(200, JSON, b'{"model_stats":[' + b",".join(pieces) + b"]}")
