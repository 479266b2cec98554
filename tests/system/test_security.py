"""HTTPS with certificates that change, restricted APIs and forwarded headers, on a real server."""

from __future__ import annotations

import json
import select
import signal
import socket
import ssl
from pathlib import Path

import httpx
import numpy as np
import pytest
import trustme
from tritonclient import http as triton

from tests.system.security_helpers import ECHO, ECHO_CONFIG


class Authority:
    """Signs the server and its clients; writes files."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.renew()

    def renew(self):
        self.ca = trustme.CA()
        server = self.ca.issue_cert("localhost", "127.0.0.1")
        server.private_key_pem.write_to_path(str(self.folder / "key.pem"))
        (self.folder / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in server.cert_chain_pems))
        self.ca.cert_pem.write_to_path(str(self.folder / "ca.pem"))

    def flags(self):
        return f"--http-ssl-cert={self.folder}/cert.pem", f"--http-ssl-key={self.folder}/key.pem"

    def client(self, certificate=False):
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if certificate:
            self.ca.issue_cert("client@here.org").configure_cert(context)
        return context


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def live(server, context):
    return httpx.get(f"https://localhost:{server.port}/v2/health/live", verify=context).status_code


def test_https_serves_large_tensors_both_ways(serve, write_model, authority):
    write_model("add_one")
    server = serve(*authority.flags()).ready()
    context = authority.client()
    with triton.InferenceServerClient(
        f"localhost:{server.port}", ssl=True, ssl_context_factory=lambda: context
    ) as client:
        values = np.arange(1 << 20, dtype=np.float32)
        tensor = triton.InferInput("A", [len(values)], "FP32")
        tensor.set_data_from_numpy(values)
        answer = client.infer("add_one", [tensor])
        assert np.array_equal(answer.as_numpy("B"), values + 1)


def test_a_slow_reader_gets_a_large_answer_whole(serve, write_model, authority):
    write_model("add_one")
    server = serve(*authority.flags()).ready()
    values = np.arange(4 << 20, dtype=np.float32) % 65521
    tensor = triton.InferInput("A", [len(values)], "FP32")
    tensor.set_data_from_numpy(values)
    body, json_bytes = triton.InferenceServerClient.generate_request_body([tensor])
    head = (
        "POST /v2/models/add_one/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Inference-Header-Content-Length: {json_bytes}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    plain = socket.create_connection(("localhost", server.port))
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    with authority.client().wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(head.encode() + body)
        got = bytearray()
        while portion := client.recv(1 << 14):
            got += portion
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert bytes(got).endswith((values + 1).tobytes())


def test_each_request_over_https_has_one_answer(serve, write_model, authority):
    write_model("add_one")
    server = serve(*authority.flags()).ready()
    context = authority.client()
    for _ in range(40):  # an answer written while the handshake's last bytes leave was once sent twice
        plain = socket.create_connection(("localhost", server.port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b'{"live":true}'):  # the head and the body may come one after the other
                answer += client.recv(4096)
                assert answer.startswith(b"HTTP/1.1 200 OK")
            assert not select.select([client], [], [], 0.003)[0]


def test_plain_http_to_the_https_port_is_refused(serve, write_model, authority):
    write_model("add_one")
    server = serve(*authority.flags()).ready()
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://localhost:{server.port}/v2/health/live")
    assert live(server, authority.client()) == 200


def test_clients_must_show_a_certificate_of_the_authority(serve, write_model, authority):
    write_model("add_one")
    server = serve(*authority.flags(), f"--http-ssl-client-ca={authority.folder}/ca.pem").ready()
    with pytest.raises(httpx.HTTPError):
        live(server, authority.client())
    assert live(server, authority.client(certificate=True)) == 200


def test_sighup_takes_new_certificates_and_keeps_the_old_when_they_are_broken(serve, write_model, authority):
    write_model("add_one")
    server = serve(*authority.flags()).ready()
    url, old = f"https://localhost:{server.port}/v2/health/live", authority.client()
    with httpx.Client(verify=old) as kept:
        assert kept.get(url).status_code == 200
        authority.renew()
        server.process.send_signal(signal.SIGHUP)
        server.says("certificates reloaded")
        assert kept.get(url).status_code == 200  # an open connection goes on
    with pytest.raises(httpx.ConnectError, match="(?i)certificate verify failed"):
        live(server, old)
    assert live(server, authority.client()) == 200
    (authority.folder / "cert.pem").write_text("broken")
    server.process.send_signal(signal.SIGHUP)
    said = server.says("certificates were not reloaded")
    assert (said["level"], "cert.pem" in said["message"]) == ("error", True)
    assert live(server, authority.client()) == 200


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--http-ssl-cert=/nowhere/c.pem", "--http-ssl-key=/nowhere/k.pem"], "cannot read /nowhere/c.pem"),
        (["--http-restricted-api=bogus:k=v"], "unknown restricted api 'bogus'"),
        (["--http-header-forward-pattern=("], "--http-header-forward-pattern=( is not a regular expression"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(serve, write_model, flags, words):
    write_model("add_one")
    server = serve(*flags)
    assert server.ended() == 1
    assert words in server.text()


def test_a_key_without_its_certificate_is_refused(serve, write_model):
    write_model("add_one")
    server = serve("--http-ssl-key=k.pem")
    assert server.ended() == 1
    assert "--http-ssl-cert must be given" in server.text()


def test_restricted_apis_let_in_who_has_the_header(serve, write_model):
    write_model("add_one")
    server = serve(
        "--http-restricted-api=inference,model-config:infer-key=a", "--http-restricted-api=health:h=b"
    ).ready()
    url = f"localhost:{server.port}"
    tensor = triton.InferInput("A", [1], "FP32")
    tensor.set_data_from_numpy(np.ones(1, np.float32))
    with triton.InferenceServerClient(url) as client:
        with pytest.raises(
            triton.InferenceServerException, match="This API is restricted, expecting header 'infer-key'"
        ):
            client.infer("add_one", [tensor])
        assert client.infer("add_one", [tensor], headers={"infer-key": "a"}).as_numpy("B")[0] == 2
        assert client.get_model_metadata("add_one")["name"] == "add_one"
        assert not client.is_server_live()
        assert client.is_server_live(headers={"H": "b"})


def test_headers_become_parameters_of_inferences(serve, write_model):
    write_model("echo", ECHO, ECHO_CONFIG)
    server = serve("--http-header-forward-pattern=^my-").ready()
    tensor = triton.InferInput("A", [1], "FP32")
    tensor.set_data_from_numpy(np.ones(1, np.float32))
    with triton.InferenceServerClient(f"localhost:{server.port}") as client:

        def parameters(headers):
            answer = client.infer("echo", [tensor], headers=headers, parameters={"own": 1, "my-b": "body"})
            return json.loads(answer.as_numpy("P")[0])

        assert parameters({"My-A": "1", "other": "2"}) == {"own": 1, "my-b": "body", "My-A": "1"}
        assert parameters({"my-b": "header"}) == {"own": 1, "my-b": "header"}
        assert parameters({"my-b": "another"}) == {"own": 1, "my-b": "another"}
        assert parameters(None) == {"own": 1, "my-b": "body"}


def test_verbose_logging_has_a_line_for_each_request(serve, write_model):
    write_model("add_one")
    server = serve("--log-verbose=1").ready()
    assert server.infer("add_one")[0] == 200
    server.says("HTTP request: POST /v2/models/add_one/infer")
