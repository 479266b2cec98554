"""Every route and every RPC that Triton knows is asked of both servers, well and badly; needs neither of them."""

from __future__ import annotations

from tests.oracle.cases.everything import ALL
from tests.oracle.cases.grpc_calls import CALLS, SERVICE
from tests.oracle.cases.grpc_regions import TALKS
from tisfast.descriptors import pool
from tisfast.operations.document_routes import DocumentRoutes
from tisfast.operations.page_routes import PageRoutes
from tisfast.operations.routes import ROUTES

OURS = {*DocumentRoutes.ROUTES, *PageRoutes.ROUTES}
"""Routes that Triton does not have."""


def test_every_route_is_asked() -> None:
    asked = {(each.method, each.target.partition("?")[0]) for case in ALL for each in case.requests if not each.raw}
    for route in ROUTES:
        for method in route.methods if route not in OURS else ():
            assert any(verb == method and route.pattern.fullmatch(path) for verb, path in asked), (method, route)


def test_every_rpc_is_called() -> None:
    called = {call.path for call in CALLS} | {call.path for talk in TALKS.values() for call in talk}
    rpcs = {f"/{SERVICE}/{method.name}" for method in pool().FindServiceByName(SERVICE).methods}
    assert rpcs <= called
