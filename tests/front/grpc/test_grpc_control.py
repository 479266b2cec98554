"""Load and unload over gRPC: the gate before a message is received, answers, statuses."""

from __future__ import annotations

import asyncio

import pytest

from tests.front.grpc.helpers import message
from tests.operations.control_helpers import FakeControl
from tests.operations.helpers import registry
from tisfast import tuning
from tisfast.descriptors import message_class
from tisfast.errors import Internal
from tisfast.operations.control_access import ControlGate
from tisfast.operations.grpc.methods import Methods
from tisfast.operations.service import Service
from tisfast.operations.tokens import TokenFile
from tisfast.repo.load_override import LoadOrder

START = "/inference.GRPCInferenceService/RepositoryModel"


@pytest.fixture
def told():
    return FakeControl()


def methods(told, gate=None):
    service = Service(registry(), server_id="s", server_version="1", control=told)
    return lambda loop: Methods(service, loop, gate)


def load(name="m", **parameters):
    return message_class("inference.RepositoryModelLoadRequest")(
        model_name=name, parameters=parameters
    ).SerializeToString()


def test_models_are_loaded_and_unloaded(run, told):
    async def scenario(server):
        client = await server.connect()
        data = bytes(2 * tuning.CONTROL_INLINE_BYTES_MAX)
        sent = load(config={"string_param": "{}"}, **{"file:1/x": {"bytes_param": data}})
        for body in (load("a", force={"bool_param": True}), sent):
            result = await client.ask(f"{START}Load", body)
            assert (result.status, result.messages) == ("0", [b""])
        unload = message_class("inference.RepositoryModelUnloadRequest")(
            model_name="m", parameters={"unload_dependents": {"bool_param": True}}
        )
        assert (await client.ask(f"{START}Unload", unload.SerializeToString())).status == "0"
        assert told.loaded == [LoadOrder("a", force=True), LoadOrder("m", "{}", {"1/x": data})]
        assert told.unloaded == [("m", True)]

    run(scenario, methods=methods(told))


def test_errors_have_their_status(run, told):
    async def scenario(server):
        client = await server.connect()
        for body, status, text in (
            (load(".."), "3", "must not contain path traversal characters"),
            (load(x={"string_param": ""}), "3", "unrecognized load parameter 'x'."),
            (load(), "13", "failed to load"),
            (b"\xff" * (tuning.CONTROL_INLINE_BYTES_MAX + 1), "13", "Unable to parse request"),
        ):
            result = await client.ask(f"{START}Load", body)
            assert result.status == status and text in result.text
        told.explicit = False
        assert (await client.ask(f"{START}Load", load(".."))).status == "14"
        assert (await client.ask(f"{START}Unload", b"")).status == "14"

    told.error = Internal("failed to load 'm', failed to poll from model repository")
    run(scenario, methods=methods(told))


def test_without_a_token_a_call_ends_before_its_message(run, told, tmp_path):
    (tmp_path / "tokens").write_text("right\n")
    gate = ControlGate(TokenFile(str(tmp_path / "tokens")), decided=False)

    async def scenario(server):
        client = await server.connect()
        for fields in ((), (("authorization", "Bearer wrong"),)):
            stream = client.call(f"{START}Load", *fields, end=False)  # no message is sent
            result = await client.result(stream)
            assert result.status == "16" and "--model-control-token-file" in result.text
        good = ("authorization", "Bearer right")
        assert (await client.ask(f"{START}Load", load(), good)).status == "0"
        assert (await client.ask("/inference.GRPCInferenceService/RepositoryIndex", b"")).status == "0"
        assert len(told.loaded) == 1

    run(scenario, methods=methods(told, gate))


def test_what_comes_through_a_proxy_is_not_of_this_machine(run, told):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask(f"{START}Unload", load(), ("x-forwarded-for", "127.0.0.1"))
        assert result.status == "7" and "a proxy" in result.text
        assert (await client.ask(f"{START}Unload", load())).status == "0"
        assert told.unloaded == [("m", False)]

    run(scenario, methods=methods(told, ControlGate(None, decided=False)))


def test_a_call_that_is_taken_back_does_not_end_the_load(run, told):
    async def scenario(server):
        told.hold()
        client = await server.connect()
        client.call(f"{START}Load", body=message(load()))
        await server.until(lambda: told.loaded)
        client.close()
        await server.gone()
        told.let_go()
        await asyncio.sleep(0)

    run(scenario, methods=methods(told))
