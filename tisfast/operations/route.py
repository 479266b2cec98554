"""One HTTP path: its verbs, handler, category of restricted APIs and documentation.

Layer 4 (operations).  A feature is a class with a table of these (`ROUTES`); routes.py lists all features.
"""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol
from urllib.parse import unquote

from tisfast.errors import TisError
from tisfast.operations.http_response import EMPTY, Response, error_response

if TYPE_CHECKING:
    from tisfast.operations.service import Service
    from tisfast.wire.head import Head

MODEL: Final = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"


class Operation(NamedTuple):
    """The documentation of a route.

    response, request: names in openapi_parts.SCHEMAS, "" for no body; result: what 200 says; events: may answer with a
    stream; errors: the statuses in openapi_parts.ERRORS that it can answer with, beside 403 and 405, which all can.
    """

    summary: str
    response: str = "Anything"
    request: str = ""
    result: str = "done"
    request_required: bool = True
    events: bool = False
    errors: tuple[str, ...] = ()


class RouteRequest(NamedTuple):
    """One request.  match: of its path; body: whole, decompressed."""

    match: re.Match[str]
    body: bytes
    head: Head

    @property
    def accepts_html(self) -> bool:
        """Whether a browser asks: Accept names text/html."""
        return any(name.lower() == b"accept" and b"text/html" in value.lower() for name, value in self.head.headers())


class Route(NamedTuple):
    """One path.  handler: a method of the feature that has the route."""

    methods: tuple[str, ...]
    pattern: re.Pattern[str]
    handler: Callable[[Any, RouteRequest], Response | Future[Response]]
    category: str
    operation: Operation


class Feature(Protocol):
    """A set of routes that belong together."""

    ROUTES: ClassVar[tuple[Route, ...]]

    def __init__(self, service: Service) -> None:
        """service: of the whole server."""


def route(
    methods: str,
    pattern: str,
    handler: Callable[[Any, RouteRequest], Response | Future[Response]],
    category: str,
    operation: Operation,
) -> Route:
    """methods: separated by spaces; pattern: of a whole path."""
    return Route(tuple(methods.split()), re.compile(pattern), handler, category, operation)


def model_of(match: re.Match[str]) -> tuple[str, str]:
    """Name and version ("" for any) in a path that begins with MODEL."""
    return unquote(match.group("model")), match.group("version") or ""


async def done(work: Awaitable[None]) -> Response:
    """Wait for a call that has no result, and give an empty response."""
    try:
        await work
    except TisError as error:
        return error_response(error.status, error.message)
    return EMPTY
