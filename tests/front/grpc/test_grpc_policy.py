"""Restricted methods and forwarded metadata."""

from __future__ import annotations

import json
import math
import struct

import pytest

from tests.front.grpc.call_helpers import field, request
from tests.front.grpc.helpers import ECHO, INFER, STREAM_INFER, message
from tisfast.config.settings import GrpcSettings
from tisfast.errors import BadRequest, ConfigError, Unavailable
from tisfast.front.grpc.front import GrpcExtras
from tisfast.operations.grpc.header_policy import grpc_restriction, metadata_forward

SETTINGS = GrpcSettings(restricted=("inference,health:key=secret",), forward_pattern="^x-|user")
TEXT = "This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
KEY = ("triton-grpc-protocol-key", "secret")


def test_settings_that_ask_for_nothing_make_nothing():
    assert grpc_restriction(GrpcSettings()) is None
    assert metadata_forward(GrpcSettings()) is None


def test_wrong_settings_name_their_flag():
    with pytest.raises(ConfigError, match="--grpc-restricted-protocol=nope"):
        grpc_restriction(GrpcSettings(restricted=("nope:a=b",)))
    with pytest.raises(ConfigError, match="--grpc-header-forward-pattern"):
        metadata_forward(GrpcSettings(forward_pattern="("))


def test_a_restricted_call_needs_its_key():
    restriction = grpc_restriction(SETTINGS)
    for metadata in (None, {}, {"key": "secret"}, {KEY[0]: "wrong"}):
        with pytest.raises(Unavailable, match="expecting header"):
            restriction.check("inference", metadata)
    restriction.check("inference", dict([KEY]))
    restriction.check("metadata", None)


def test_metadata_become_parameters():
    forward = metadata_forward(SETTINGS)
    given = {"x-a": "1", "y": "2", "user-agent": "grpc", "te": "trailers", "grpc-timeout": "1S"}
    assert json.loads(forward.parameters(given)) == {"x-a": "1", "user-agent": "grpc"}
    assert forward.parameters({"y": "2"}) == b""
    assert forward.parameters(None) == b""


def test_binary_metadata_are_decoded():
    forward = metadata_forward(SETTINGS)
    given = {"x-a-bin": "AQI", "x-b-bin": "w6Q=", "x-c-bin": "/w", "x-d-bin": "?"}
    decoded = {"x-a-bin": "\x01\x02", "x-b-bin": "ä", "x-c-bin": "ÿ", "x-d-bin": "?"}
    assert json.loads(forward.parameters(given)) == decoded


@pytest.mark.parametrize(("pattern", "forwarded"), [("MY-.*", True), ("(?-i)MY-.*", False)])
def test_a_pattern_has_no_case_as_in_triton(pattern, forwarded):
    forward = metadata_forward(GrpcSettings(forward_pattern=pattern))
    assert bool(forward.parameters({"my-header": "v"})) is forwarded


def test_what_grpc_itself_takes_is_not_forwarded():
    everything = metadata_forward(GrpcSettings(forward_pattern=".*"))
    assert everything.parameters({"te": "trailers", "content-type": "application/grpc", "grpc-encoding": "gzip"}) == b""
    assert everything.parameters({"triton_grpc_error": "true"}) == b""
    with pytest.raises(BadRequest, match="reserved"):
        everything.parameters({"priority": "1"})


@pytest.mark.parametrize("path", [ECHO, INFER, STREAM_INFER])
def test_calls_are_refused_until_they_have_the_key(run, path):
    async def scenario(server):
        client = await server.connect()
        refused = await client.ask(path, b"")
        assert (refused.status, refused.text) == ("14", TEXT)
        assert (await client.ask(ECHO, b"", KEY)).status == "0"

    run(scenario, extras=GrpcExtras(restriction=grpc_restriction(SETTINGS)))


def test_forwarded_metadata_reach_the_record(run):
    async def scenario(server):
        client = await server.connect()
        bare = client.call(INFER, body=message(request()))
        await server.dispatched(1)
        first = client.call(INFER, ("x-a", "one"), body=message(request()))
        again = client.call(INFER, ("x-a", "two"), body=message(request()))
        stream = client.call(STREAM_INFER, ("x-a", "three"), body=message(request()))
        asked = []
        while len(asked) < 4:
            await server.dispatched(1)
            asked += [each.input.record for each in server.link.dispatched[0]]
            server.execute()
        for call in (bare, first, again, stream):
            await client.result(call)
        assert [b"x-a" in record for record in asked] == [False, True, True, True]
        for word, record in zip((b"one", b"two", b"three"), asked[1:], strict=True):
            assert word in record

    run(scenario, extras=GrpcExtras(forward=metadata_forward(SETTINGS)))


def test_a_reserved_name_is_refused(run):
    async def scenario(server):
        client = await server.connect()
        refused = await client.ask(INFER, request(), ("triton_x", "1"))
        assert refused.status == "3" and "reserved" in refused.text
        stream = client.call(STREAM_INFER, ("triton_x", "1"), body=2 * message(request()))
        answered = await client.result(stream)
        assert answered.status == "0" and len(answered.messages) == 2
        assert all(b"is reserved for Triton usage" in each for each in answered.messages)
        assert server.runtime.arena.used_blocks == 0
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario, extras=GrpcExtras(forward=metadata_forward(GrpcSettings(forward_pattern="triton"))))


def test_metadata_goes_beside_numbers_that_json_does_not_have(run):
    async def scenario(server):
        client = await server.connect()
        number = field(4, field(1, b"x") + field(2, b"\x21" + struct.pack("<d", math.nan)))
        stream = client.call(INFER, ("x-a", "1"), body=message(request() + number))
        await server.dispatched(1)
        assert b'{"x":NaN,"x-a":"1"}' in server.link.dispatched[0][0].input.record
        server.execute()
        assert (await client.result(stream)).text == "model says no"

    run(scenario, extras=GrpcExtras(forward=metadata_forward(SETTINGS)))
