"""Certificates and keys in the forms that perf_analyzer takes; an encrypted connection in memory."""

from __future__ import annotations

import ssl

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.bench.stub_server import StubServer
from tisfast import cli_bench
from tisfast.bench.encryption import Encryption
from tisfast.client import Client
from tisfast.errors import BadRequest


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def files(tmp_path, authority):
    """The authority, and a client's certificate with its key in each form."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for kind in ("RSA", "ECDSA"):
        made = authority.issue_cert("client@here.org", key_type=trustme.KeyType[kind])
        made.cert_chain_pems[0].write_to_path(str(tmp_path / f"{kind}.pem"))
        (tmp_path / f"{kind}.der").write_bytes(ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode()))
        key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
        for name, form in (("pkcs8", PrivateFormat.PKCS8), ("own", PrivateFormat.TraditionalOpenSSL)):
            (tmp_path / f"{kind}-{name}.der").write_bytes(key.private_bytes(Encoding.DER, form, NoEncryption()))
        made.private_key_pem.write_to_path(str(tmp_path / f"{kind}-key.pem"))
        locked = serialization.BestAvailableEncryption(b"secret")
        (tmp_path / f"{kind}-locked.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    return tmp_path


@pytest.mark.parametrize("kind", ["RSA", "ECDSA"])
@pytest.mark.parametrize("form", ["pkcs8", "own"])
def test_a_key_in_der_is_used_whatever_its_form(files, kind, form):
    for cert, cert_type in ((f"{kind}.pem", "PEM"), (f"{kind}.der", "DER")):
        key = str(files / f"{kind}-{form}.der")
        Encryption(cert=str(files / cert), cert_type=cert_type, key=key, key_type="DER").context(False)


def test_a_file_that_cannot_be_used_is_named(files):
    rubbish = files / "rubbish"
    rubbish.write_text("nothing")
    for tls, text in (
        (Encryption(ca=str(rubbish)), f"TLS: {rubbish} holds no certificates in PEM that could be trusted: "),
        (Encryption(cert=str(files / "RSA.pem"), key=str(rubbish)), f"{rubbish} (PEM) are no certificate and its "),
        (Encryption(cert=str(rubbish), key=str(files / "RSA-key.pem")), f"TLS: {rubbish} (PEM) and "),
        (
            Encryption(cert=str(rubbish), cert_type="DER", key=str(files / "RSA-key.pem")),
            f"TLS: {rubbish} (DER) and ",
        ),
        (Encryption(cert=str(files / "RSA.pem"), key=str(files / "ECDSA-key.pem")), "no certificate and its private"),
        (Encryption(cert=str(files / "RSA.pem"), key=str(files / "RSA-locked.pem")), "RSA-locked.pem is encrypted"),
    ):
        with pytest.raises(BadRequest) as wrong:
            tls.context(False)
        assert text in wrong.value.message


@pytest.fixture
def stub(authority):
    """A server that speaks TLS 1.2 or newer, and its context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with StubServer(tls=context) as stub:
        yield stub, context


def bench(port: int, *more: object) -> int:
    return cli_bench.main(["-m", "stub", "-u", f"https://127.0.0.1:{port}", "--request-count", "20", *map(str, more)])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_go_and_are_counted_with_each_version(stub, files, version):
    server, context = stub
    context.minimum_version = context.maximum_version = version
    trusted = ["--ssl-https-ca-certificates-file", files / "ca.pem"]
    assert bench(server.port, "--concurrency-range", "4", *trusted) == 0
    assert server.count == 1 + 20


def test_large_bodies_go_through_records(stub, files):
    server, _ = stub
    assert bench(server.port, "--ssl-https-verify-peer", "0", "-b", "8") == 0
    assert len(server.bodies[-1]) > 8 * 16


def test_a_connection_that_the_server_drops_is_made_again(authority, capsys):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with StubServer(lambda number: "drop" if number == 5 else "", tls=context) as server:
        assert bench(server.port, "--ssl-https-verify-peer", "0") == 1
    out = capsys.readouterr().out
    assert "Failed requests: 1" in out
    assert "Request count: 19" in out


def test_metrics_are_read_over_tls(stub, files):
    server, _ = stub
    server.metrics = 'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\n'
    url = f"https://127.0.0.1:{server.port}"
    with Client(url, tls=Encryption(ca=str(files / "ca.pem"))) as client:
        assert client.metrics(url) == server.metrics
        with pytest.raises(BadRequest, match="is no address of metrics, which are HTTP"):
            client.metrics("grpcs://127.0.0.1:1")


def test_a_load_that_asks_nothing_before_names_the_host_too(stub, capsys):
    server, _ = stub
    code = bench(server.port, "--service-kind", "openai", "--endpoint", "v1/chat/completions")
    assert code == 99
    told = f"error: https://127.0.0.1:{server.port}: cannot connect: TLS: its certificate was not accepted: "
    assert told in capsys.readouterr().err


def test_a_server_that_speaks_no_tls_is_told(capsys):
    with StubServer() as server:
        assert bench(server.port) == 99
    assert f"error: cannot connect to https://127.0.0.1:{server.port}: " in capsys.readouterr().err
