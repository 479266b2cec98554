"""The server's page for a browser.  Layer 4 (operations)."""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, ClassVar

from tisfast.operations.html_page import front_page, model_row
from tisfast.operations.http_response import Response
from tisfast.operations.route import Operation, Route, RouteRequest, route
from tisfast.operations.slices import in_slices

if TYPE_CHECKING:
    from tisfast.operations.service import Service


class PageRoutes:
    """Name, version, and all models with state and reason: what the repository index has."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _page(self, _request: RouteRequest) -> Response | Future[Response]:
        service = self._service

        def whole(rows: list[str]) -> Response:
            return front_page(service.server_metadata(), service.why_not_ready(), rows)

        return in_slices(map(model_row, service.repository_index()), whole)

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "GET",
            r"/",
            _page,
            "model-repository",
            Operation("A page for people: all models with their states", "", result="HTML", errors=("400",)),
        ),
    )
