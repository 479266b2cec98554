"""The table of all routes but inference.  Layer 4 (operations).

FEATURES is the list of all that a server can be asked for: a new feature is one more class here.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Final

from tisfast.errors import TisError
from tisfast.operations.document_routes import DocumentRoutes
from tisfast.operations.http_response import Response, error_response, http_error
from tisfast.operations.model_routes import HealthRoutes, InferenceRoutes, MetadataRoutes, StatisticsRoutes
from tisfast.operations.page_routes import PageRoutes
from tisfast.operations.region_routes import RegionRoutes
from tisfast.operations.repository_routes import RepositoryRoutes
from tisfast.operations.route import Feature, Route, RouteRequest
from tisfast.operations.setting_routes import LogSettingRoutes, TraceSettingRoutes

if TYPE_CHECKING:
    from tisfast.operations.service import Service
    from tisfast.wire.head import Head

FEATURES: Final[tuple[type[Feature], ...]] = (
    HealthRoutes,
    StatisticsRoutes,  # before metadata: /v2/models/stats is no model's
    InferenceRoutes,
    MetadataRoutes,
    RepositoryRoutes,
    RegionRoutes,
    TraceSettingRoutes,
    LogSettingRoutes,
    PageRoutes,
)
ROUTES: Final = (*(route for feature in FEATURES for route in feature.ROUTES), *DocumentRoutes.ROUTES)
"""Looked at in this order."""


def category_of(path: str) -> str:
    """The category of restricted APIs that a path belongs to, "" for a path that is not served."""
    return next((route.category for route in ROUTES if route.pattern.fullmatch(path)), "")


class Routes:
    """Answers for one server: its operations (Service) as HTTP."""

    def __init__(self, service: Service) -> None:
        features = [*(feature(service) for feature in FEATURES), DocumentRoutes(service, ROUTES)]
        self._table: list[tuple[Route, object]] = [(route, feature) for feature in features for route in feature.ROUTES]

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
        for route, feature in self._table:
            match = route.pattern.fullmatch(head.path)
            if match is None:
                continue
            if head.method not in route.methods:
                allowed += route.methods
                continue
            return route.handler(feature, RouteRequest(match, body, head))
        if not allowed:
            return http_error(404, "Not Found")
        allow = ("Allow", ", ".join(allowed))  # RFC 9110, 15.5.6
        return http_error(405, "Method Not Allowed")._replace(headers=(allow,))
