"""The gRPC port of a real server, asked by gRPC's own client library: TLS, limits of time, the end."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as client
import trustme

OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
GATED = """
import os
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        pb_utils.Logger.log_info("executing")
        while not os.path.exists(GATE):
            time.sleep(0.005)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", r.inputs()[0].as_numpy())]) for r in requests]
"""


def port_of(server) -> int:
    return server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]


def tensors(values=(1.0, 2.0)):
    tensor = client.InferInput("A", [len(values)], "FP32")
    tensor.set_data_from_numpy(np.array(values, np.float32))
    return [tensor]


@pytest.fixture
def write_gated(write_model, tmp_path):
    """Write a model that answers once what this returns has been called."""

    def write(name):
        write_model(name, GATED.replace("GATE", repr(str(tmp_path / "gate"))))
        return (tmp_path / "gate").touch

    return write


@pytest.fixture
def files(tmp_path):
    """A certificate of a new authority, and one of a client, in PEM files."""
    authority = trustme.CA()
    server, user = authority.issue_cert("localhost"), authority.issue_cert("user@localhost")
    paths = {name: str(tmp_path / f"{name}.pem") for name in ("cert", "key", "ca", "user_cert", "user_key")}
    for cert, one in (("cert", server), ("user_cert", user)):
        Path(paths[cert]).write_bytes(b"".join(pem.bytes() for pem in one.cert_chain_pems))
        one.private_key_pem.write_to_path(paths[cert.replace("cert", "key")])
    authority.cert_pem.write_to_path(paths["ca"])
    return paths


def test_it_says_where_it_is_and_answers(write_model, serve):
    write_model("m")
    server = serve()
    port = port_of(server)
    server.says(f"Started GRPCInferenceService at 0.0.0.0:{port}")
    with client.InferenceServerClient(f"localhost:{port}") as asked:
        for coding in (None, "gzip", "deflate"):
            got = asked.infer("m", tensors(), compression_algorithm=coding).as_numpy("B")
            assert got.tolist() == [2.0, 3.0]


def test_tls(write_model, serve, files):
    write_model("m")
    server = serve("--grpc-use-ssl", f"--grpc-server-cert={files['cert']}", f"--grpc-server-key={files['key']}")
    with client.InferenceServerClient(f"localhost:{port_of(server)}", ssl=True, root_certificates=files["ca"]) as asked:
        large = np.arange(1 << 20, dtype=np.float32)
        assert (asked.infer("m", tensors(large)).as_numpy("B") == large + 1).all()


def test_mutual_tls_asks_clients_who_they_are(write_model, serve, files):
    write_model("m")
    server = serve(
        "--grpc-use-ssl-mutual",
        f"--grpc-server-cert={files['cert']}",
        f"--grpc-server-key={files['key']}",
        f"--grpc-root-cert={files['ca']}",
    )
    address = f"localhost:{port_of(server)}"
    with (
        client.InferenceServerClient(address, ssl=True, root_certificates=files["ca"]) as stranger,
        pytest.raises(client.InferenceServerException, match="UNAVAILABLE"),
    ):
        stranger.infer("m", tensors(), client_timeout=60)
    with client.InferenceServerClient(
        address,
        ssl=True,
        root_certificates=files["ca"],
        private_key=files["user_key"],
        certificate_chain=files["user_cert"],
    ) as friend:
        assert friend.infer("m", tensors()).as_numpy("B").tolist() == [2.0, 3.0]


def test_certificates_that_cannot_be_read_end_the_start(write_model, serve, files):
    write_model("m")
    server = serve("--grpc-use-ssl", "--grpc-server-cert=/nowhere.pem", f"--grpc-server-key={files['key']}")
    assert server.ended() == 1
    server.says("cannot read /nowhere.pem")


def test_a_deadline_frees_the_queue(write_gated, serve):
    open_gate = write_gated("m")
    server = serve()
    with client.InferenceServerClient(f"localhost:{port_of(server)}") as asked, ThreadPoolExecutor(3) as pool:
        running = [pool.submit(asked.infer, "m", tensors()) for _ in range(2)]
        with pytest.raises(client.InferenceServerException, match="Deadline"):
            asked.infer("m", tensors(), client_timeout=0.05)
        open_gate()
        assert all(one.result().as_numpy("B").tolist() == [1.0, 2.0] for one in running)


def test_the_end_waits_for_answers(write_gated, serve):
    open_gate = write_gated("m")
    server = serve()
    with (
        client.InferenceServerClient(f"localhost:{port_of(server)}") as asked,
        client.InferenceServerClient(f"localhost:{port_of(server)}", channel_args=OWN_CONNECTION) as idle,
        ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(asked.infer, "m", tensors())
        assert idle.is_server_live()
        server.says("executing")
        server.process.send_signal(signal.SIGTERM)
        server.says("Signal (15) received.")
        open_gate()
        assert running.result().as_numpy("B").tolist() == [1.0, 2.0]
        assert server.ended() == 0
