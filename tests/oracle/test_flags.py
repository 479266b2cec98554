"""Both servers with flags: restricted APIs and forwarded headers."""

# ruff: noqa: E501  (a table: one call, one line)
from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.oracle.alike import differences
from tests.oracle.cases.grpc_calls import Call, rpc, stream
from tests.oracle.cases.grpc_calls import infer as grpc_infer
from tests.oracle.cases.grpc_calls import request as grpc_request
from tests.oracle.cases.grpc_calls import tensor as grpc_tensor
from tests.oracle.cases.table import Request, post, tensor
from tests.oracle.exchange import converse
from tests.oracle.grpc_exchange import alike, ask
from tests.oracle.grpc_exchange import brief as grpc_brief
from tests.oracle.servers import Servers, pair

FLAGS = (
    "--http-restricted-api=statistics,trace:api-key=secret",
    "--http-restricted-api=model-repository,logging:admin=yes",
    "--grpc-restricted-protocol=statistics,trace:api-key=secret",
    "--grpc-restricted-protocol=model-repository,logging:admin=yes",
    "--http-header-forward-pattern=x-.*",
    "--grpc-header-forward-pattern=x-.*",
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
INPUT = {
    "inputs": [grpc_tensor("INPUT0", (1,), "INT32")],
    "raw_input_contents": [b"\7\0\0\0"],
    "outputs": [{"name": "FACTS"}],
}
KEY, ADMIN = "triton-grpc-protocol-api-key", "triton-grpc-protocol-admin"


def statistics(name: str, *metadata: tuple[str, str]) -> Call:
    return rpc(name, "13.22", "ModelStatistics", name="add_sub")._replace(metadata=metadata)


GRPC = [
    rpc("nothing restricted", "13.22", "ModelMetadata", name="add_sub"),
    statistics("without the header"),
    statistics("wrong value", (KEY, "wrong")),
    statistics("right value", (KEY, "secret")),
    statistics("without the prefix", ("api-key", "secret")),
    statistics("another group's header", (ADMIN, "yes")),
    rpc("trace without", "13.22", "TraceSetting"),
    rpc("index without", "13.22", "RepositoryIndex"),
    rpc("index with", "13.22", "RepositoryIndex")._replace(metadata=((ADMIN, "yes"),)),
    rpc("logging without", "13.22", "LogSettings"),
    rpc("load without", "13.22", "RepositoryModelLoad", model_name="add_sub"),
    grpc_infer("no header forwarded", "24.04", model="facts", **INPUT),
    grpc_infer("forwarded", "24.04", model="facts", **INPUT)._replace(
        metadata=(("x-one", "1"), ("other", "c"), ("x-two", "b"))
    ),
    grpc_infer(
        "forwarded over a parameter", "24.04", model="facts", parameters={"x-one": {"string_param": "mine"}}, **INPUT
    )._replace(metadata=(("x-one", "theirs"),)),
    stream("a stream's metadata", grpc_request("facts", **INPUT), grpc_request("facts", **INPUT))._replace(
        metadata=(("x-one", "1"),)
    ),
]


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Servers, Servers]]:
    with pair(*FLAGS) as servers:
        yield servers


@pytest.mark.parametrize("name", HTTP)
def test_http(name: str, both: tuple[Servers, Servers]) -> None:
    theirs, ours = (converse(servers.get().http, (HTTP[name],)) for servers in both)
    assert differences(theirs, ours) == {}


@pytest.mark.parametrize("call", GRPC, ids=[call.name for call in GRPC])
def test_grpc(call: Call, both: tuple[Servers, Servers]) -> None:
    theirs, ours = (ask(servers.get().grpc, call) for servers in both)
    assert alike(theirs, ours), f"\nTriton:  {grpc_brief(theirs)}\ntisfast: {grpc_brief(ours)}"


def test_what_is_forwarded_reaches_the_model(both: tuple[Servers, Servers]) -> None:
    (answer,) = converse(both[1].get().http, (HTTP["forwarded"],))
    facts = json.loads(json.loads(answer.body)["outputs"][0]["data"][0])
    assert {"own": "p", "x-one": "1"}.items() <= facts["parameters"].items()
    assert "other" not in facts["parameters"]
