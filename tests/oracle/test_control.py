"""Both servers with --model-control-mode=explicit: index, load, unload, their parameters and errors, on both protocols.

Each server has the same conversation with a repository of its own copy of the models: what one call does, the next ones
see.
"""

# ruff: noqa: E501  (a table: one call, one line)
from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from perf.oracle.server import Server
from tests.oracle.alike import differences
from tests.oracle.cases.grpc_calls import rpc
from tests.oracle.exchange import Answer
from tests.oracle.grpc_exchange import alike, ask, brief
from tests.oracle.servers import EXAMPLES, HERE

SECONDS_MAX: Final = 30
FLAGS: Final = ("--model-control-mode=explicit", "--load-model=identity_fp32")
LOAD: Final = "/v2/repository/models/{}/load"
UNLOAD: Final = "/v2/repository/models/{}/unload"
CODE: Final = (EXAMPLES / "identity_fp32/1/model.py").read_bytes()
B64: Final = base64.b64encode(CODE).decode()
CONFIG: Final = json.dumps({
    "backend": "python", "max_batch_size": "0",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": ["-1"]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
})  # fmt: skip
SHOWN: Final = ("add_sub", "identity_fp32", "sound")
"""Models that an index is compared by: reasons of failures are each server's own words, and of models that a call gave
2.51 lists none."""

Step = tuple[str, str, str, Any]
"""Name, method, target, body (JSON value, or bytes)."""


def load(name: str, model: str, **parameters: Any) -> Step:
    return name, "POST", LOAD.format(model), {"parameters": parameters} if parameters else None


def unload(name: str, model: str, body: Any = None) -> Step:
    return name, "POST", UNLOAD.format(model), body


def index(name: str, body: Any = None) -> Step:
    return name, "POST", "/v2/repository/index", body


HTTP: Final[list[Step]] = [
    index("index at the start"),
    index("ready ones at the start", {"ready": True}),
    index("index with a list", []),
    ("index of a repository", "POST", "/v2/repository/r/index", None),
    load("nobody", "nobody"),
    load("a good one", "add_sub"),
    load("once more", "add_sub"),
    index("index with it"),
    ("config of it", "GET", "/v2/models/add_sub/config", None),
    load("broken configuration", "in_config"),
    load("override that is no JSON", "add_sub", config="{"),
    load("override that is nothing", "add_sub", config=""),
    load("override with an unknown key", "add_sub", config='{"max_batch_sise": 1}'),
    load("override with a wrong value", "add_sub", config='{"max_batch_size": "x"}'),
    load("override with another name", "add_sub", config='{"name": "other"}'),
    load("override of a good kind", "identity_fp32", config=CONFIG),
    load(
        "override with bare keys and a last comma",
        "identity_fp32",
        config=CONFIG[:-1] + ", parameters: {'a': {string_value: 'b'},},}",
    ),
    ("config that was overridden", "GET", "/v2/models/identity_fp32/config", None),
    load("config as number", "add_sub", config=3),
    load("unknown parameter", "add_sub", x="1"),
    load("unknown parameter as number", "add_sub", x=1),
    ("parameters as number", "POST", LOAD.format("add_sub"), {"parameters": 3}),
    ("parameters as list", "POST", LOAD.format("add_sub"), {"parameters": []}),
    ("parameters as null", "POST", LOAD.format("add_sub"), {"parameters": None}),
    ("list as body", "POST", LOAD.format("add_sub"), []),
    ("number as body", "POST", LOAD.format("add_sub"), 3),
    ("no JSON", "POST", LOAD.format("add_sub"), b"{"),
    ("unknown member", "POST", LOAD.format("add_sub"), {"config": "{}"}),
    ("get of load", "GET", LOAD.format("add_sub"), None),
    ("get of unload", "GET", UNLOAD.format("add_sub"), None),
    ("load in a repository", "POST", "/v2/repository/r/models/add_sub/load", None),
    ("unload in a repository", "POST", "/v2/repository/r/models/add_sub/unload", None),
    load("files without configuration", "new", **{"file:1/model.py": B64}),
    load("files of a new model", "new", config=CONFIG, **{"file:1/model.py": B64}),
    ("metadata of the new model", "GET", "/v2/models/new", None),
    load("file outside", "new", config=CONFIG, **{"file:../x": B64}),
    load("file outside by a way round", "new", config=CONFIG, **{"file:1/../../x": B64}),
    load("file of no name", "new", config=CONFIG, **{"file:": B64}),
    load("file of a long name", "new", config=CONFIG, **{"file:1/" + "n" * 300: B64}),
    load("file as folder", "new", config=CONFIG, **{"file:1/model.py": B64, "file:1/model.py/x": B64}),
    load("file as number", "new", config=CONFIG, **{"file:1/model.py": 3}),
    load("file that is no base64", "new", config=CONFIG, **{"file:1/model.py": B64, "file:1/x": "###"}),
    load("name that leads out", ".."),
    load("name of dots", "..my_model"),
    load("name of white space", "%20"),
    unload("dependents as text", "sound", {"parameters": {"unload_dependents": "true"}}),
    unload("dependents as number", "sound", {"parameters": {"unload_dependents": 3}}),
    unload("unknown unload parameter", "sound", {"parameters": {"x": True}}),
    unload("unload with no JSON", "sound", b"{"),
    unload("unload of nobody", "nobody"),
    unload("unload that leads out", ".."),
    unload("unload", "add_sub", {"parameters": {"unload_dependents": True}}),
    unload("unload again", "add_sub"),
    unload("unload of the new model", "new"),
    index("index at the end"),
    ("metadata of an unloaded model", "GET", "/v2/models/add_sub", None),
    load("load after unload", "add_sub"),
]
DIFFERENT: Final[dict[str, tuple[str, str]]] = {
    # What is not honoured is refused by name.
    "unknown member": ("200", "400 unknown member 'config' in the body: what a call asks for stands in 'parameters'"),
    # A call that is not understood unloads nothing.
    "dependents as text": (
        "200",
        "500 Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean",
    ),
    "dependents as number": (
        "200",
        "500 Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean",
    ),
    "unknown unload parameter": ("200", "400 unrecognized unload parameter 'x'."),
    "unload with no JSON": ("200", "500 failed to parse the request JSON buffer: "),
    # 2.51 takes whatever its decoder makes of it.
    "file that is no base64": ("200", "400 Invalid file parameter 'file:1/x': its value is no base64"),
    # newer Triton looks at names.
    "name that leads out": (
        "500 failed to load '..', failed to poll from model repository",
        "400 Model name '..' must not contain path traversal characters",
    ),
    "name of white space": ("500 failed to load '%20'", "400 Model name cannot be empty"),
}
GRPC_LOAD, GRPC_UNLOAD = "RepositoryModelLoad", "RepositoryModelUnload"
GRPC: Final = [
    rpc("good", "6.03", GRPC_LOAD, model_name="add_sub"),
    rpc("nobody", "6.04", GRPC_LOAD, model_name="nobody"),
    rpc("broken override", "6.06", GRPC_LOAD, model_name="add_sub", parameters={"config": {"string_param": "{"}}),
    rpc("override", "6.06", GRPC_LOAD, model_name="identity_fp32", parameters={"config": {"string_param": CONFIG}}),
    rpc("config as number", "6.14", GRPC_LOAD, model_name="add_sub", parameters={"config": {"int64_param": 3}}),
    rpc("file as text", "6.14", GRPC_LOAD, model_name="add_sub", parameters={"file:1/x": {"string_param": "3"}}),
    rpc("unknown", "6.08", GRPC_LOAD, model_name="add_sub", parameters={"x": {"bool_param": True}}),
    rpc("files without configuration", "6.07", GRPC_LOAD, model_name="new", parameters={"file:1/model.py": {"bytes_param": CODE}}),
    rpc("files", "6.07", GRPC_LOAD, model_name="new", parameters={"file:1/model.py": {"bytes_param": CODE}, "config": {"string_param": CONFIG}}),
    rpc("file outside", "6.07", GRPC_LOAD, model_name="new", parameters={"file:../model.py": {"bytes_param": CODE}, "config": {"string_param": CONFIG}}),
    rpc("load in a repository", "6.13", GRPC_LOAD, model_name="add_sub", repository_name="r"),
    rpc("unload in a repository", "6.13", GRPC_UNLOAD, model_name="add_sub", repository_name="r"),
    rpc("index of a repository", "6.02", "RepositoryIndex", repository_name="r"),
    rpc("index", "6.01", "RepositoryIndex", ready=True),
    rpc("ready", "13.25", "ModelReady", name="add_sub"),
    rpc("dependents as text", "6.14", GRPC_UNLOAD, model_name="add_sub", parameters={"unload_dependents": {"string_param": "x"}}),
    rpc("unload of nobody", "6.09", GRPC_UNLOAD, model_name="nobody"),
    rpc("unload of no name", "6.09", GRPC_UNLOAD),
    rpc("unload", "6.09", GRPC_UNLOAD, model_name="add_sub", parameters={"unload_dependents": {"bool_param": True}}),
    rpc("ready no more", "13.25", "ModelReady", name="add_sub"),
]  # fmt: skip
INDEXES: Final = ("index",)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    repositories = [EXAMPLES, HERE / "broken_models"]
    with Server("triton", repositories, FLAGS) as triton, Server("tisfast", repositories, FLAGS) as tisfast:
        yield triton, tisfast


def told(server: Server, method: str, target: str, body: Any) -> Answer:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection = http.client.HTTPConnection("localhost", server.http, timeout=SECONDS_MAX)
    try:
        connection.request(method, target, data)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, shown(target, text))


def shown(target: str, text: bytes) -> bytes:
    """An index of some models."""
    if not target.endswith("/index") or not text.startswith(b"["):
        return text
    return json.dumps([comparable(each) for each in json.loads(text) if each["name"] in SHOWN]).encode()


def comparable(entry: dict[str, str]) -> dict[str, str]:
    """Which of two old versions is gone already is a matter of time; what goes on says why it was not replaced."""
    if entry.get("state") == "UNLOADING":
        return {**entry, "state": "UNAVAILABLE", "reason": "unloaded"}
    return {name: value for name, value in entry.items() if name != "reason" or entry["state"] != "READY"}


def short(answer: Answer) -> str:
    value = json.loads(answer.body) if answer.body[:1] in (b"{", b"[") else {}
    return f"{answer.status} {value.get('error', '') if isinstance(value, dict) else ''}".rstrip()


def test_http(servers: tuple[Server, Server]) -> None:
    wrong = {}
    for name, method, target, body in HTTP:
        theirs, ours = (told(server, method, target, body) for server in servers)
        if name in DIFFERENT:
            if not all(
                short(answer).startswith(text) for answer, text in zip((theirs, ours), DIFFERENT[name], strict=True)
            ):
                wrong[name] = (short(theirs), short(ours))
        elif found := differences([theirs], [ours]):
            wrong[name] = found
    assert wrong == {}


def test_grpc(servers: tuple[Server, Server]) -> None:
    wrong = {}
    for call in GRPC:
        theirs, ours = (ask(server.grpc, call) for server in servers)
        if call.name in INDEXES:
            theirs, ours = (each._replace(messages=tuple(map(of_index, each.messages))) for each in (theirs, ours))
        if not alike(theirs, ours):
            wrong[call.name] = (brief(theirs), brief(ours))
    assert wrong == {}


def of_index(index: Any) -> Any:
    return {"models": [comparable(each) for each in index["models"] if each["name"] in SHOWN]}


def test_the_names_of_differences_exist() -> None:
    assert set(DIFFERENT) <= {name for name, *_ in HTTP}
    assert set(INDEXES) <= {call.name for call in GRPC}
