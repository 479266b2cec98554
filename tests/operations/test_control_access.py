"""Who may load and unload models: the gate, and how it stands in the way of a request's body."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile

import pytest

from tests.front.helpers import Client, serve
from tests.operations.control_helpers import FakeControl, write
from tisfast import limits
from tisfast.config.settings import RepositorySettings
from tisfast.errors import Forbidden, Unauthenticated
from tisfast.operations.control_access import ControlGate, HttpGate, control_gate, is_local, names_category
from tisfast.operations.tokens import TokenFile

LOAD = "/v2/repository/models/m/load"
EXPLICIT = RepositorySettings(("/models",), control_mode="explicit")


class Socket:
    def __init__(self, family):
        self.family = family


class Transport:
    """As uvloop's tell of the other side."""

    def __init__(self, peer, family=socket.AF_INET):
        self._facts = {"peername": peer, "socket": Socket(family)}

    def get_extra_info(self, name):
        return self._facts[name]


HERE, FAR = Transport(("127.0.0.1", 1)), Transport(("10.0.0.7", 1))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_loopback_addresses_are_this_machine(address):
    assert is_local(Transport((address, 1, 0, 0) if ":" in address else (address, 1)))


@pytest.mark.parametrize(
    "peer",
    [
        *(("10.0.0.7", 1), ("::ffff:10.0.0.7", 1, 0, 0), ("fe80::1%eth0", 1, 0, 2), ("2001:db8::1", 1, 0, 0)),
        *(("0.0.0.0", 1), ("::", 1, 0, 0), ("127.0.0.6", 1), ("::ffff:127.0.0.6", 1, 0, 0)),
        *(("localhost", 1), (), None, "", ("127.0.0.1.example", 1)),
    ],
    ids=str,
)
def test_all_others_are_not(peer):
    assert not is_local(Transport(peer))


def test_a_unix_socket_is_this_machine():
    assert is_local(Transport("", socket.AF_UNIX))


def test_without_flags_only_programs_of_this_machine_get_in():
    gate = ControlGate(None, decided=False)
    gate.check({}, HERE)
    with pytest.raises(Forbidden, match=r"\(loopback\) only; start the server with --model-control-token-file"):
        gate.check({"authorization": "Bearer x"}, FAR)


@pytest.mark.parametrize(
    ("header", "whose"),
    [
        ("x-forwarded-for", "a proxy"), ("forwarded", "a proxy"), ("x-real-ip", "a proxy"), ("via", "a proxy"),
        ("x-forwarded-port", "a proxy"), ("x-forwarded-server", "a proxy"), ("cf-connecting-ip", "a proxy"),
        ("origin", "a browser"), ("sec-fetch-site", "a browser"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["127.0.0.1", ""])
def test_whoever_speaks_for_others_is_not_taken_for_this_machine(header, whose, value):
    with pytest.raises(Forbidden, match=rf"through {whose} \(header '{header}'\)"):
        ControlGate(None, decided=False).check({header: value}, HERE)
    with pytest.raises(Forbidden):  # and nobody gets in by what a proxy says
        ControlGate(None, decided=False).check({header: "127.0.0.1"}, FAR)


def test_restricted_apis_that_name_the_category_have_decided():
    ControlGate(None, decided=True).check({"x-forwarded-for": "10.0.0.7"}, FAR)
    assert names_category(["health:a=b", "trace, model-repository:k=v"])
    assert not names_category(["health:model-repository=v", "inference:k=model-repository:"])
    assert control_gate(RepositorySettings(("/models",)), None, ()) is None


@pytest.fixture
def tokens(tmp_path):
    write(tmp_path / "tokens", "right\nother\n")
    return TokenFile(str(tmp_path / "tokens"))


@pytest.mark.parametrize("authorization", ["Bearer right", "bearer  right ", "BEARER other"])
@pytest.mark.parametrize("decided", [False, True])
def test_a_token_gets_in_from_anywhere(tokens, authorization, decided):
    gate = ControlGate(tokens, decided=decided)
    for transport in (HERE, FAR):
        gate.check({"authorization": authorization, "x-forwarded-for": "10.0.0.7"}, transport)


@pytest.mark.parametrize("decided", [False, True])
def test_with_tokens_nobody_gets_in_without(tokens, decided):
    gate = ControlGate(tokens, decided=decided)
    for headers in ({}, {"authorization": ""}, {"authorization": "right"}, {"authorization": "Basic right"},
                    {"authorization": "Bearer"}, {"authorization": "Bearer "}):  # fmt: skip
        with pytest.raises(Unauthenticated, match="send the header 'Authorization: Bearer TOKEN'"):
            gate.check(headers, HERE)
    for token in ("wrong", "righ", "right,other", "right other"):
        with pytest.raises(Unauthenticated, match="none of those in --model-control-token-file"):
            gate.check({"authorization": f"Bearer {token}"}, HERE)


# ---- on real sockets


def controlled(scenario, gate, *, most=64 << 20):
    """Runs a coroutine function with a server whose control API is fake, and what it was told."""
    told = FakeControl()
    serve(scenario, gate=HttpGate(gate, most), control=told, max_input_bytes=most)
    return told


def request(path=LOAD, body=b"", length=None, **headers):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {length}\r\n\r\n".encode() + body


def test_a_call_without_a_token_is_refused_before_its_body(tokens):
    async def scenario(server):
        client = await server.connect()
        client.write(request(length=900_000_000))  # not a byte of it is sent
        answer = await client.read()
        assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="model control"')
        assert "--model-control-token-file" in json.loads(answer.body)["error"]

    assert controlled(scenario, ControlGate(tokens, decided=False)).loaded == []


def test_a_call_with_a_token_goes_through_and_others_need_none(tokens):
    async def scenario(server):
        client = await server.connect()
        client.write(request(Authorization="Bearer right", X_Forwarded_For="10.0.0.7"))
        assert (await client.read()).status == 200
        for path, method in (("/v2/repository/index", "POST"), ("/v2/models/m", "GET"), ("/v2/health/live", "GET")):
            client.write(f"{method} {path} HTTP/1.1\r\n\r\n".encode())
            assert (await client.read()).status == 200
        client.write(b"GET /v2/repository/models/m/load HTTP/1.1\r\n\r\n")
        assert (await client.read()).status == 405
        client.write(request("/v2/repository/models/m/unload"))
        assert (await client.read()).status == 401

    told = controlled(scenario, ControlGate(tokens, decided=False))
    assert len(told.loaded) == 1 and told.unloaded == []


def test_programs_of_this_machine_need_nothing_and_browsers_get_403():
    async def scenario(server):
        client = await server.connect()
        client.write(request())
        assert (await client.read()).status == 200
        client.write(request(Origin="http://evil.example", body=b"{}"))
        answer = await client.read()
        assert answer.status == 403 and "a browser" in json.loads(answer.body)["error"]
        client.write(request())  # the connection goes on
        assert (await client.read()).status == 200

    assert len(controlled(scenario, ControlGate(None, decided=False)).loaded) == 2


def test_over_ipv6_and_a_unix_socket():
    with tempfile.TemporaryDirectory(prefix="tf") as folder:
        path = os.path.join(folder, "s")

        async def scenario(server):
            listener = await server.loop.create_unix_server(server.front.protocol_factory, path)
            client = Client(*await asyncio.open_unix_connection(path))
            client.write(request())
            assert (await client.read()).status == 200
            client.close()
            listener.close()

        assert len(controlled(scenario, ControlGate(None, decided=False)).loaded) == 1

    async def both(server):
        sock = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        listener = await server.loop.create_server(server.front.protocol_factory, sock=sock)
        for address in ("::1", "127.0.0.1"):  # which arrives as ::ffff:127.0.0.1 there
            client = Client(*await asyncio.open_connection(address, sock.getsockname()[1]))
            client.write(request())
            assert (await client.read()).status == 200
            client.close()
        listener.close()

    if socket.has_dualstack_ipv6():
        assert len(controlled(both, ControlGate(None, decided=False)).loaded) == 2


def test_bodies_of_load_calls_may_be_larger_than_others():
    async def scenario(server):
        client = await server.connect()
        large = b'{"parameters": {"config": "' + b"x" * 5000 + b'"}}'
        client.write(request(body=large))
        assert (await client.read()).status == 200
        parts = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in (large[:3000], large[3000:]))
        client.write(f"POST {LOAD} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + parts + b"0\r\n\r\n")
        assert (await client.read()).status == 200
        client.write(request("/v2/repository/index", body=large))
        answer = await client.read()
        assert answer.status == 400 and "--http-max-input-size" in json.loads(answer.body)["error"]
        client.write(request(length=limits.CONTROL_BODY_BYTES_MAX + 1))
        answer = await client.read()
        assert answer.status == 400 and "of a load call" in json.loads(answer.body)["error"]

    assert len(controlled(scenario, ControlGate(None, decided=False), most=1000).loaded) == 2


def test_a_client_that_leaves_does_not_end_its_call():
    async def scenario(server):
        told = server.control
        told.hold()
        client = await server.connect()
        client.write(request())
        await server.until(lambda: told.loaded)
        client.close()
        await server.gone()
        told.let_go()
        await server.settle()

    assert len(controlled(scenario, ControlGate(None, decided=False)).loaded) == 1
