"""Both servers with flags: restricted APIs (row 24.01) and forwarded headers (rows 1.33, 24.04) over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.oracle.alike import brief, differences
from tests.oracle.cases.table import Request, post, tensor
from tests.oracle.conftest import Servers, pair
from tests.oracle.exchange import converse

FLAGS = (
    "--http-restricted-api=statistics,trace:api-key=secret",
    "--http-restricted-api=model-repository,logging:admin=yes",
    "--http-header-forward-pattern=x-.*",
)
FACTS = {"inputs": [tensor("INPUT0", "INT32", [1], [7])], "parameters": {"own": "p"}, "outputs": [{"name": "FACTS"}]}


def get(target: str, *headers: tuple[str, str], method: str = "GET") -> Request:
    return Request(method, target, headers)


HTTP = {
    "nothing restricted": get("/v2/models/add_sub"),
    "without the header": get("/v2/models/add_sub/stats"),
    "wrong value": get("/v2/models/add_sub/stats", ("api-key", "wrong")),
    "right value": get("/v2/models/nobody/stats", ("api-key", "secret")),
    "name in capitals": get("/v2/models/nobody/stats", ("API-KEY", "secret")),
    "another group's header": get("/v2/models/add_sub/stats", ("admin", "yes")),
    "trace without": get("/v2/trace/setting"),
    "index without": get("/v2/repository/index", method="POST"),
    "index with": get("/v2/repository/index", ("admin", "yes"), method="POST"),
    "logging without": get("/v2/logging"),
    "logging with": get("/v2/logging", ("admin", "yes")),
    "restricted before the method is looked at": get("/v2/models/stats", method="POST"),
    "no header forwarded": post("facts", FACTS),
    "forwarded": post("facts", FACTS, [("x-one", "1"), ("X-Two", "b"), ("other", "c"), ("not-x-three", "d")]),
    "forwarded over a parameter": post("facts", {**FACTS, "parameters": {"x-one": "mine"}}, [("x-one", "theirs")]),
}
DIFFERENT: dict[str, tuple[str, str]] = {}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Servers, Servers]]:
    with pair(*FLAGS) as servers:
        yield servers


@pytest.mark.parametrize("name", HTTP)
def test_http(name: str, both: tuple[Servers, Servers]) -> None:
    theirs, ours = (converse(servers.get().http, (HTTP[name],)) for servers in both)
    if name in DIFFERENT:
        assert brief(ours).startswith(DIFFERENT[name][1])
        assert differences(theirs, ours), "answered alike by now: take it out of the table"
        return
    assert differences(theirs, ours) == {}


def test_what_is_forwarded_reaches_the_model(both: tuple[Servers, Servers]) -> None:
    (answer,) = converse(both[1].get().http, (HTTP["forwarded"],))
    facts = json.loads(json.loads(answer.body)["outputs"][0]["data"][0])
    assert {"own": "p", "x-one": "1"}.items() <= facts["parameters"].items()
    assert "other" not in facts["parameters"]
