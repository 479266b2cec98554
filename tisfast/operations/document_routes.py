"""OpenAPI documents as HTTP.  Layer 4 (operations)."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tisfast.operations import openapi
from tisfast.operations.html_page import document_page
from tisfast.operations.http_response import Response, json_response
from tisfast.operations.route import MODEL, Operation, Route, RouteRequest, model_of, route
from tisfast.operations.slices import in_slices

if TYPE_CHECKING:
    from tisfast.operations.service import Service


class DocumentRoutes:
    """Documents of all routes.  routes: those to describe."""

    def __init__(self, service: Service, routes: Sequence[Route]) -> None:
        self._service, self._routes = service, routes
        self._made: dict[bool, Response] = {}  # of the whole server, which never changes

    def _server(self, request: RouteRequest) -> Response | Future[Response]:
        as_html = request.accepts_html
        if as_html in self._made:
            return self._made[as_html]

        def whole(found: list[openapi.PathOperation]) -> Response:
            self._made[as_html] = _response(openapi.document(found, self._service.server_metadata()), as_html)
            return self._made[as_html]

        return in_slices(openapi.operations(self._routes), whole)

    def _model(self, request: RouteRequest) -> Response | Future[Response]:
        name, version = model_of(request.match)
        model = self._service.model_metadata(name, version)
        config = self._service.model_config(name, version)

        def whole(found: list[openapi.PathOperation]) -> Response:
            document = openapi.model_document(found, self._service.server_metadata(), model, config)
            return _response(document, request.accepts_html)

        return in_slices(openapi.operations(self._routes), whole)

    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(
            "GET",
            r"/v2/docs",
            _server,
            "metadata",
            Operation("This document; HTML for a browser", "Anything", result="the document"),
        ),
        route(
            "GET",
            rf"{MODEL}/docs",
            _model,
            "metadata",
            Operation(
                "This document for one model, with an example", "Anything", result="the document", errors=("400", "404")
            ),
        ),
    )


def _response(document: dict[str, Any], as_html: bool) -> Response:
    if as_html:
        return document_page(document)
    return json_response(document)._replace(headers=(("Vary", "Accept"),))
