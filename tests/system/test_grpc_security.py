"""Restricted methods, forwarded metadata, renewed certificates and traces on the gRPC port of a real server."""

from __future__ import annotations

import json
import signal

import grpc
import numpy as np
import pytest
import trustme
from tritonclient import grpc as client
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.system.security_helpers import ECHO, ECHO_CONFIG
from tests.telemetry.otlp_helpers import Receiver

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def address(server):
    return f"localhost:{server.said(lambda r: r.get('event') == 'ready', 'ready')['grpc_port']}"


def ones(count=1):
    tensor = client.InferInput("A", [count], "FP32")
    tensor.set_data_from_numpy(np.ones(count, np.float32))
    return [tensor]


def test_restricted_methods_let_in_who_has_the_key(serve, write_model):
    write_model("m")
    server = serve("--grpc-restricted-protocol=inference,model-config:key=a", "--grpc-restricted-protocol=health:h=b")
    with client.InferenceServerClient(address(server)) as asked:
        with pytest.raises(client.InferenceServerException) as refused:
            asked.infer("m", ones())
        assert refused.value.status() == "StatusCode.UNAVAILABLE"
        text = "This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
        assert refused.value.message() == text
        assert asked.infer("m", ones(), headers={"triton-grpc-protocol-key": "a"}).as_numpy("B")[0] == 2
        assert asked.get_model_metadata("m").name == "m"
        with pytest.raises(client.InferenceServerException, match="expecting header 'triton-grpc-protocol-h'"):
            asked.is_server_live()
        assert asked.is_server_live(headers={"triton-grpc-protocol-h": "b"})


def test_metadata_become_parameters_of_inferences(serve, write_model):
    write_model("echo", ECHO, ECHO_CONFIG)
    server = serve("--grpc-header-forward-pattern=^my-")
    with client.InferenceServerClient(address(server)) as asked:

        def parameters(headers):
            answer = asked.infer("echo", ones(), headers=headers, parameters={"own": 1, "my-b": "body"})
            return json.loads(answer.as_numpy("P")[0])

        assert parameters({"my-a": "1", "other": "2"}) == {"own": 1, "my-b": "body", "my-a": "1"}
        assert parameters({"my-b": "header"}) == {"own": 1, "my-b": "header"}
        assert parameters(None) == {"own": 1, "my-b": "body"}


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--grpc-restricted-protocol=bogus:k=v", "unknown restricted protocol 'bogus'"),
        ("--grpc-header-forward-pattern=(", "--grpc-header-forward-pattern=( is not a regular expression"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(serve, write_model, flag, words):
    write_model("m")
    server = serve(flag)
    assert server.ended() == 1
    assert words in server.text()


def renew(folder):
    authority = trustme.CA()
    server = authority.issue_cert("localhost")
    server.private_key_pem.write_to_path(str(folder / "key.pem"))
    (folder / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in server.cert_chain_pems))
    return authority.cert_pem.bytes()


def served_to(server, authority):
    """Whether a client that trusts this authority alone is answered.

    It calls: gRPC's thread that watches a channel's state raises where the channel is closed meanwhile.
    """
    with grpc.secure_channel(address(server), grpc.ssl_channel_credentials(authority)) as channel:
        try:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(service_pb2.ServerLiveRequest(), timeout=60)
        except grpc.RpcError as error:
            assert "CERTIFICATE_VERIFY_FAILED" in error.details()
            return False
        return True


def test_sighup_takes_new_certificates_and_keeps_the_old_when_they_are_broken(serve, write_model, tmp_path):
    write_model("m")
    old = renew(tmp_path)
    server = serve("--grpc-use-ssl", f"--grpc-server-cert={tmp_path}/cert.pem", f"--grpc-server-key={tmp_path}/key.pem")
    assert served_to(server, old)
    new = renew(tmp_path)
    server.process.send_signal(signal.SIGHUP)
    server.says("certificates reloaded")
    assert served_to(server, new)
    assert not served_to(server, old)
    (tmp_path / "cert.pem").write_text("broken")
    server.process.send_signal(signal.SIGHUP)
    said = server.says("certificates were not reloaded")
    assert said["level"] == "error" and "cert.pem" in said["message"]
    assert served_to(server, new)


def test_large_tensors_both_ways_over_tls(serve, write_model, tmp_path):
    write_model("m")
    (tmp_path / "ca.pem").write_bytes(renew(tmp_path))
    server = serve("--grpc-use-ssl", f"--grpc-server-cert={tmp_path}/cert.pem", f"--grpc-server-key={tmp_path}/key.pem")
    values = np.arange(4 << 20, dtype=np.float32) % 65521
    tensor = client.InferInput("A", [len(values)], "FP32")
    tensor.set_data_from_numpy(values)
    with client.InferenceServerClient(address(server), ssl=True, root_certificates=f"{tmp_path}/ca.pem") as asked:
        for _ in range(3):
            assert np.array_equal(asked.infer("m", [tensor]).as_numpy("B"), values + 1)


def test_trace_files(serve, write_model, tmp_path):
    write_model("m")
    file = tmp_path / "trace.json"
    server = serve(f"--trace-config=triton,file={file}", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1")
    with client.InferenceServerClient(address(server)) as asked:
        assert asked.infer("m", ones(), request_id="q").as_numpy("B")[0] == 2
    assert server.end() == 0
    entries = json.loads(file.read_text())
    assert [each["request_id"] for each in entries if "request_id" in each] == ["q"]
    times = {each["timestamps"][0]["name"]: each["timestamps"][0]["ns"] for each in entries if "timestamps" in each}
    assert list(times) == [
        "GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START",
        "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "INFER_RESPONSE_COMPLETE", "REQUEST_END",
        "GRPC_SEND_START", "GRPC_SEND_END",
    ]  # fmt: skip
    assert list(times.values()) == sorted(times.values())


def test_spans_continue_the_callers_trace(serve, write_model):
    write_model("m")
    receiver = Receiver()
    try:
        server = serve(
            "--trace-config=mode=opentelemetry", f"--trace-config=opentelemetry,url={receiver.url}",
            "--trace-config=level=TIMESTAMPS", "--trace-config=rate=0",
            "--trace-config=opentelemetry,bsp_schedule_delay=50",
        )  # fmt: skip
        with client.InferenceServerClient(address(server)) as asked:
            asked.infer("m", ones())  # nobody asked for a trace of this one
            asked.infer("m", ones(), headers={"traceparent": PARENT, "tracestate": "a=b"})
        spans = receiver.spans(3)
        assert server.end() == 0
    finally:
        receiver.close()
    assert {span.trace_id.hex() for span in spans} == {PARENT.split("-")[1]}
    assert PARENT.split("-")[2] in {span.parent_span_id.hex() for span in spans}
