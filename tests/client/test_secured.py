"""TLS, tokens and compression, on a real server of both protocols."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import trustme

from tests.client.helpers import place_of, recorded
from tisfast.client import AsyncClient, BadRequest, Client, ConnectFailed, Tls

A = np.arange(4, dtype=np.float32)
BIG = np.zeros(200_000, np.float32)


@pytest.fixture
def secured(serve, write_model, tmp_path):
    """A server whose certificates are known to nobody else, and how to trust it; it asks gRPC clients for theirs."""
    ca = trustme.CA()
    for name, made in (("server", ca.issue_cert("127.0.0.1")), ("client", ca.issue_cert("me@here.org"))):
        made.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    write_model("add_one")
    http = (f"--http-ssl-cert={tmp_path}/server.pem", f"--http-ssl-key={tmp_path}/server.key")
    grpc = ("--grpc-use-ssl-mutual=true", f"--grpc-server-cert={tmp_path}/server.pem")
    more = (f"--grpc-server-key={tmp_path}/server.key", f"--grpc-root-cert={tmp_path}/ca.pem")
    place = place_of(serve(*http, *grpc, *more).ready())
    tls = Tls(ca=f"{tmp_path}/ca.pem", cert=f"{tmp_path}/client.pem", key=f"{tmp_path}/client.key")
    yield place.http.replace("http", "https"), place.grpc.replace("grpc", "grpcs"), tls
    place.server.end()


def test_tls(secured):
    *urls, tls = secured

    async def awaited(url):
        async with AsyncClient(url, tls=tls) as client:
            return await asyncio.gather(*[client.model("add_one")(BIG + number) for number in range(3)])

    for url in urls:
        with Client(url, tls=tls) as client:
            for _ in range(3):
                assert client.model("add_one")(A).tolist() == [1, 2, 3, 4]
            assert client.model("add_one")(BIG).sum() == BIG.size
        assert [each[0] for each in asyncio.run(awaited(url))] == [1, 2, 3]
        with Client(url, retries=0) as client, pytest.raises(ConnectFailed, match="certificate"):
            client.live()
        with Client(url, tls=Tls(cert=tls.cert, key=tls.key, verify=False)) as client:
            assert client.live()


def test_tls_that_cannot_be(tmp_path):
    with pytest.raises(BadRequest, match="TLS cannot be set up with ca='/none'"):
        Client("https://localhost", tls=Tls(ca="/none"))
    with pytest.raises(BadRequest, match="is not encrypted; say https:// or grpcs://"):
        Client("localhost", tls=Tls())


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compression(url, coding):
    with recorded(url) as (through, sent), Client(through, compression=coding, shared_memory=False) as client:
        assert client.model("add_one")(A).tolist() == [1, 2, 3, 4]
        assert client.model("add_one")(BIG).sum() == BIG.size
    assert 0 < len(sent) < BIG.nbytes // 10


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://x", "known are http://, https://, grpc://, grpcs://"),
        ("localhost:x", "is no address"),
        ("http://", "must be HOST:PORT"),
        ("grpc://h/path", "which gRPC has no place for"),
        ("http://u@h", "must be HOST:PORT"),
    ],
)
def test_what_is_no_address(url, said):
    with pytest.raises(BadRequest, match=said):
        Client(url)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"connections": 0}, "connections=0 must be an integer from 1"),
        ({"timeout": -1}, "timeout=-1 must be seconds"),
        ({"compression": "br"}, "compression='br' must be one of"),
        ({"shared_memory": "no"}, "shared_memory='no' must be"),
        ({"colour": "red"}, "'colour' is no option of a client"),
        ({"headers": {"a\nb": "c"}}, "has a name or value that is not one line"),
        ({"headers": {"a": 1}}, "a mapping of texts to texts; 'a' has a value of int"),
    ],
)
def test_options_that_are_none(options, said):
    with pytest.raises(BadRequest, match=said):
        Client("localhost", **options)
