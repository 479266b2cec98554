"""Load and unload calls: what their parameters say, what is wrong with them, and how many there may be."""
# ruff: noqa: E501 - one case, one line

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operations.control_helpers import FakeControl
from tests.operations.helpers import ask, registry
from tisfast import descriptors, limits, tuning
from tisfast.errors import BadRequest, Internal, TisError, Unavailable
from tisfast.operations import model_control
from tisfast.operations.model_control import ControlCalls, check_name
from tisfast.operations.routes import Routes
from tisfast.operations.service import Service
from tisfast.repo.load_override import LoadOrder
from tisfast.types import Status

NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"
MODEL = b"class TritonPythonModel: ..."


def body(**parameters):
    return json.dumps({"parameters": parameters}).encode()


def b64(data):
    return base64.b64encode(data).decode()


# ---- over HTTP


@pytest.mark.parametrize(
    ("sent", "order"),
    [
        (b"", LoadOrder("m")),
        (b"{}", LoadOrder("m")),
        (b"[]", LoadOrder("m")),
        (b"3", LoadOrder("m")),
        (body(), LoadOrder("m")),
        (body(config='{"name": "é"}'), LoadOrder("m", '{"name": "é"}')),
        (body(config=""), LoadOrder("m", "")),
        (body(force=True), LoadOrder("m", force=True)),
        (body(config="{}", **{"file:1/model.py": b64(MODEL), "file:l.txt": ""}), LoadOrder("m", "{}", {"1/model.py": MODEL, "l.txt": b""})),
        (body(**{"file:1/x": base64.encodebytes(bytes(200)).decode()}), LoadOrder("m", None, {"1/x": bytes(200)})),
    ],
)  # fmt: skip
def test_what_a_load_call_says(sent, order):
    assert model_control.http_load_order("m", sent) == order


@pytest.mark.parametrize(
    ("sent", "status", "text"),
    [
        (b"{", Status.INTERNAL, "failed to parse the request JSON buffer: "),
        (b'{"parameters": 3}', Status.INTERNAL, "attempt to get members for non-object"),
        (b'{"parameters": null}', Status.INTERNAL, "attempt to get members for non-object"),
        (b'{"config": "{}"}', Status.INVALID_ARG, "unknown member 'config' in the body: what a call asks for stands in 'parameters'"),
        (body(config=3), Status.INTERNAL, "attempt to access JSON non-string as string (load parameter 'config')"),
        (body(x=3), Status.INTERNAL, "attempt to access JSON non-string as string"),
        (body(x="3"), Status.INTERNAL, "unexpected error on creating Triton parameter: unrecognized load parameter 'x'"),
        (body(force="true"), Status.INTERNAL, "attempt to access JSON non-boolean as boolean (force)"),
        (body(**{"file:1/m": 3}), Status.INTERNAL, "attempt to access JSON non-string as string"),
        (body(**{"file:1/m": "###"}), Status.INVALID_ARG, "Invalid file parameter 'file:1/m': its value is no base64"),
        (body(**{"file:1/m": "QQ"}), Status.INVALID_ARG, "Invalid file parameter 'file:1/m': its value is no base64"),
        (body(**{"file:1/m": "QQ==QQ=="}), Status.INVALID_ARG, "Invalid file parameter 'file:1/m': its value is no base64"),
        (body(**{"file:1/m": "é"}), Status.INVALID_ARG, "Invalid file parameter 'file:1/m': its value is no base64"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_load_call(sent, status, text):
    with pytest.raises(TisError) as caught:
        model_control.http_load_order("m", sent)
    assert caught.value.status == status
    assert caught.value.message.startswith(text)


def test_dependents_go_when_asked_for():
    assert model_control.http_unload_dependents(b"") is False
    assert model_control.http_unload_dependents(body(unload_dependents=False)) is False
    assert model_control.http_unload_dependents(body(unload_dependents=True)) is True


@pytest.mark.parametrize(
    ("sent", "status", "text"),
    [
        (body(unload_dependents="true"), Status.INTERNAL, "Unable to parse 'unload_dependents': attempt to access JSON non-boolean"),
        (body(x=True), Status.INVALID_ARG, "unrecognized unload parameter 'x'."),
        (b"{", Status.INTERNAL, "failed to parse the request JSON buffer: "),
        (b'{"unload_dependents": true}', Status.INVALID_ARG, "unknown member 'unload_dependents'"),
    ],
)  # fmt: skip
def test_an_unload_call_that_is_not_understood_unloads_nothing(sent, status, text):
    told = FakeControl()
    answer = Routes(Service(registry(), server_id="s", server_version="1", control=told)).handle(
        ask("POST", "/v2/repository/models/m/unload"), sent
    )
    assert json.loads(answer.body)["error"].startswith(text)
    assert answer.status == {Status.INTERNAL: 500, Status.INVALID_ARG: 400}[status]
    assert told.unloaded == []


def call(told, path, sent=b""):
    """One request through the routes, to its answer."""

    async def ask_and_wait():
        service = Service(registry(), server_id="s", server_version="1", control=told)
        answer = Routes(service).handle(ask("POST", path), sent)
        return await answer if isinstance(answer, asyncio.Future) else answer

    return asyncio.run(ask_and_wait())


def test_the_routes_load_and_unload():
    told = FakeControl()
    answer = call(told, "/v2/repository/models/a%20b/load", body(force=True))
    assert (answer.status, answer.body) == (200, b"")
    assert told.loaded == [LoadOrder("a b", force=True)]
    assert call(told, "/v2/repository/models/m/unload", body(unload_dependents=True)).status == 200
    assert told.unloaded == [("m", True)]


def test_a_large_load_call_is_read_in_a_thread():
    told = FakeControl()
    data = bytes(2 * tuning.CONTROL_INLINE_BYTES_MAX)
    assert call(told, "/v2/repository/models/m/load", body(config="{}", **{"file:1/x": b64(data)})).status == 200
    assert told.loaded == [LoadOrder("m", "{}", {"1/x": data})]
    padded = b'{"x": "' + b"-" * tuning.CONTROL_INLINE_BYTES_MAX + b'"}'
    assert call(told, "/v2/repository/models/m/load", padded).status == 400


LARGE = bytes(range(256)) * (tuning.CONTROL_DECODE_BYTES // 256)


@pytest.mark.parametrize("more", [0, 1, 2, 3])
def test_files_of_any_size_are_decoded(more):
    given = {"x": LARGE + b"x" * more, "small": b"1", "y": LARGE}
    parameters = {f"file:{name}": b64(data) for name, data in given.items()}
    config = json.dumps({"parameters": {"a": {"string_value": '"\\"'}}})
    assert model_control.http_load_order("m", body(config=config, **parameters)) == LoadOrder("m", config, given)


@pytest.mark.parametrize(
    "wrong", ["=" + b64(LARGE)[1:], b64(LARGE)[:-1] + "#", b64(LARGE) + "Q", "QQ==" + b64(LARGE) * 2]
)
def test_a_large_file_that_is_no_base64(wrong):
    with pytest.raises(BadRequest, match="Invalid file parameter 'file:x': its value is no base64"):
        model_control.http_load_order("m", body(**{"file:x": wrong}))


def test_other_large_strings_are_what_they_are():
    text = "é" * tuning.CONTROL_DECODE_BYTES
    whole = json.dumps({"parameters": {"config": text}}, ensure_ascii=False).encode()
    assert model_control.http_load_order("m", whole) == LoadOrder("m", text)
    escaped = b64(LARGE).replace("/", "\\/")  # as some writers of JSON do
    assert model_control.http_load_order("m", b'{"parameters": {"file:x": "%s"}}' % escaped.encode()).files == {
        "x": LARGE
    }
    for broken in (whole[:-3], whole[:-40], whole.replace("é".encode(), b"\xff", 1)):
        with pytest.raises(Internal, match="failed to parse the request JSON buffer"):
            model_control.http_load_order("m", broken)
    with pytest.raises(Internal, match="unrecognized load parameter"):
        model_control.http_load_order("m", body(x=text))


def test_the_lifecycles_errors_are_answered():
    told = FakeControl()
    told.error = Internal("failed to load 'm', failed to poll from model repository")
    answer = call(told, "/v2/repository/models/m/load")
    assert (answer.status, json.loads(answer.body)["error"]) == (500, told.error.message)


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_a_repository_cannot_be_named(verb):
    answer = call(FakeControl(), f"/v2/repository/r/models/m/{verb}")
    assert (answer.status, json.loads(answer.body)["error"]) == (
        501,
        "'repository_name' specification is not supported",
    )


@pytest.mark.parametrize("told", [None, FakeControl(explicit=False)])
@pytest.mark.parametrize("path", ["m/load", "../load", "m/unload"])
def test_without_explicit_control_nothing_is_loaded(told, path):
    answer = call(told, f"/v2/repository/models/{path}")
    assert (answer.status, json.loads(answer.body)["error"]) == (503, NOT_EXPLICIT)


# ---- names


@pytest.mark.parametrize("name", ["m", "..my_model", "model..1", ".m", "m.", "m ", "..."[:0] + "é"])
def test_names_that_may_be(name):
    check_name(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "Model name cannot be empty"),
        (" \t", "Model name cannot be empty"),
        ("..", "must not contain path traversal characters"),
        (".", "must not contain path traversal characters"),
        (". .", "must not contain path traversal characters"),
        ("../m", "must not contain path traversal characters"),
        ("a/b", "must not contain path traversal characters"),
        ("a\\b", "must not contain path traversal characters"),
        ("a\0b", "must not contain path traversal characters"),
    ],
)
def test_names_that_may_not_be(name, text):
    with pytest.raises(BadRequest, match=text):
        check_name(name)
    told = FakeControl()
    asyncio.run(ControlCalls(told).unload(name, dependents=False))  # there is nothing to find on the disk
    assert told.unloaded == [(name, False)]


# ---- bounds


def test_calls_in_flight_are_bounded():
    async def scenario():
        told = FakeControl()
        told.hold()
        calls = ControlCalls(told)
        running = [asyncio.ensure_future(calls.load(LoadOrder(f"m{n}"))) for n in range(limits.CONTROL_CALLS_MAX)]
        await asyncio.sleep(0)
        for another in (calls.load(LoadOrder("x")), calls.unload("x", dependents=False)):
            with pytest.raises(Unavailable, match="are not answered yet; retry later"):
                await another
        told.let_go()
        await asyncio.gather(*running)
        await calls.load(LoadOrder("x"))

    asyncio.run(scenario())


class Large(bytes):
    """Bytes that say they are many."""

    def __len__(self):
        return limits.CONTROL_BYTES_MAX // 2


def test_bytes_in_flight_are_bounded():
    async def scenario():
        told = FakeControl()
        told.hold()
        calls = ControlCalls(told)
        order = LoadOrder("m", "{}", {"1/x": Large()})
        running = [asyncio.ensure_future(calls.load(order)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="the files of load calls"):
            await calls.load(LoadOrder("m", "{}", {"1/x": b"1"}))
        told.error = Internal("x")
        told.let_go()
        assert all(isinstance(each, Internal) for each in await asyncio.gather(*running, return_exceptions=True))
        told.error = None
        await calls.load(order)

    asyncio.run(scenario())


# ---- over gRPC


def parameters(**values):
    message = descriptors.message_class("inference.RepositoryModelLoadRequest")(parameters=values)
    return message.parameters


def test_what_a_grpc_load_call_says():
    found = model_control.grpc_load_order(
        "m",
        parameters(
            config={"string_param": "{}"}, force={"bool_param": True}, **{"file:1/model.py": {"bytes_param": MODEL}}
        ),
    )
    assert found == LoadOrder("m", "{}", {"1/model.py": MODEL}, force=True)
    assert model_control.grpc_load_order("m", parameters()) == LoadOrder("m")
    assert model_control.grpc_unload_dependents(parameters(unload_dependents={"bool_param": True}))
    assert not model_control.grpc_unload_dependents(parameters())


# ---- anything


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5) | st.sampled_from(["QUJD", "{}", "QQ=="]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["config", "force", "unload_dependents", "file:1/x", "file:", "x"])


@settings(max_examples=300, deadline=None)
@given(st.one_of(VALUES, st.fixed_dictionaries({"parameters": st.dictionaries(NAMES, VALUES, max_size=3)})))
def test_any_json_is_an_order_or_a_clear_error(value):
    sent = json.dumps(value).encode()
    for read in (lambda: model_control.http_load_order("m", sent), lambda: model_control.http_unload_dependents(sent)):
        try:
            found = read()
        except TisError as error:
            assert error.message and error.status in (Status.INTERNAL, Status.INVALID_ARG)
            continue
        if isinstance(found, LoadOrder) and isinstance(value, dict):
            said = value.get("parameters", {})
            assert found.config == said.get("config") and found.force == said.get("force", False)
            assert set(found.files) == {name[5:] for name in said if name.startswith("file:")}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_an_order_or_a_clear_error(sent):
    try:
        model_control.http_load_order("m", sent)
    except TisError as error:
        assert error.message


KINDS = st.one_of(
    st.fixed_dictionaries({"bool_param": st.booleans()}), st.fixed_dictionaries({"string_param": st.text(max_size=4)}),
    st.fixed_dictionaries({"bytes_param": st.binary(max_size=4)}), st.fixed_dictionaries({"int64_param": st.integers(0, 9)}),
    st.just({}),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, KINDS, max_size=3))
def test_any_grpc_parameters_are_an_order_or_a_clear_error(values):
    for read in (model_control.grpc_unload_dependents, lambda given: model_control.grpc_load_order("m", given)):
        try:
            read(parameters(**values))
        except BadRequest as error:
            assert error.message.endswith(".") and "'" in error.message
