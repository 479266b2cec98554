"""The gRPC client session beside servers (ours, grpcio's, nghttpd), however few bytes come at a time."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from concurrent import futures
from contextlib import contextmanager, suppress

import grpc
import pytest

from tests.system.helpers import ROOT, until
from tests.unused_ports import closed_port
from tisfast.errors import BadRequest
from tisfast.wire.buffer_tensor import BufferTensor
from tisfast.wire.grpc.client_codec import RequestMessage, read_infer_response
from tisfast.wire.grpc.client_session import GrpcClientSession, timeout_text

SECONDS_MAX = 60
INFER = "/inference.GRPCInferenceService/ModelInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"
NGHTTPD = shutil.which("nghttpd") or shutil.which("nghttpd", path="/usr/sbin")
LARGE = bytes(range(256)) * 60_000  # larger than a flow-control window


class Connection:
    """A socket around the session."""

    def __init__(self, port, receive_bytes=65536, **options):
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        self.session = GrpcClientSession(f"127.0.0.1:{port}", **options)
        self._receive_bytes = receive_bytes
        self.messages: dict = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def pump(self):
        """Send what is to be sent, take what comes; the calls that ended."""
        self.flush()
        try:
            data = self.socket.recv(self._receive_bytes)
        except ConnectionResetError:
            data = b""
        events = self.session.take(data) if data else self.session.lost()
        for kind, call, value in events:
            if kind == "message":
                self.messages.setdefault(call.id, []).append(value)
        return [call for kind, call, _ in events if kind == "end"]

    def flush(self):
        """A server that has gone takes nothing any more; what it said before is still there to be read."""
        with suppress(ConnectionError):
            self.socket.sendall(self.session.outgoing())

    def until_ended(self, *calls):
        left = {call.id for call in calls}
        while left:
            left -= {call.id for call in self.pump()}
        self.flush()
        return [(call.code, self.messages.get(call.id, [])) for call in calls]

    def ask(self, path, *messages, **options):
        call = self.session.start(path, **options)
        for message in messages:
            self.session.send(call, message)
        self.session.finish_sending(call)
        return call, *self.until_ended(call)[0]


@pytest.mark.parametrize("receive_bytes", [1, 7, 65536])
def test_our_server_answers(serve, receive_bytes):
    server = serve(repository=ROOT / "examples/models").ready()
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    with Connection(port, receive_bytes) as client:
        assert client.ask(LIVE, b"")[1:] == (0, [b"\x08\x01"])
        floats = [BufferTensor(f"INPUT{i}", "FP32", [4], struct.pack("<4f", 1, 2, 3, 4)) for i in (0, 1)]
        writer, calls = RequestMessage(), []
        for number in range(20):  # together on one connection
            call = client.session.start(INFER, timeout_ns=60 * 10**9)
            client.session.send(call, writer.render("add_sub", floats, id=str(number)), last=True)
            calls.append(call)
        for number, (code, messages) in enumerate(client.until_ended(*calls)):
            response = read_infer_response(messages[0])
            assert (code, response.id) == (0, str(number))
            assert bytes(response.outputs[0].buffer()) == struct.pack("<4f", 2, 4, 6, 8)
        call, code, _ = client.ask(INFER, b"\x0a\x04none")
        assert (code, "none" in call.text) == (5, True) or code == 14
    server.end()


def test_a_large_tensor_goes_and_comes_back(serve):
    server = serve(repository=ROOT / "examples/models").ready()
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    with Connection(port) as client:
        tensor = BufferTensor("INPUT0", "FP32", [len(LARGE) // 4], LARGE)
        call, code, messages = client.ask(INFER, RequestMessage().render("identity_fp32", [tensor]))
        assert (code, call.text) == (0, "") and bytes(read_infer_response(messages[0]).outputs[0].buffer()) == LARGE
    server.end()


@contextmanager
def grpcio(unary, **options):
    """grpcio's own server with one generic unary method and one that streams."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method == "/t.T/Unary":
                return grpc.unary_unary_rpc_method_handler(unary)
            if details.method == "/t.T/Stream":
                return grpc.stream_stream_rpc_method_handler(lambda requests, _: (2 * each for each in requests))
            return None

    server = grpc.server(
        futures.ThreadPoolExecutor(2), [Handler()], options=[("grpc.max_receive_message_length", -1)], **options
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port, server
    finally:
        server.stop(None).wait(SECONDS_MAX)


def echo(request, context):
    context.send_initial_metadata((("seen", dict(context.invocation_metadata()).get("x-a", "")),))
    return request


@pytest.mark.parametrize("receive_bytes", [1, 65536])
def test_grpcios_server_answers(receive_bytes):
    with grpcio(echo) as (port, _), Connection(port, receive_bytes) as client:
        call, code, messages = client.ask("/t.T/Unary", b"abc", metadata=[("X-A", "b"), ("y-bin", b"\0\1")])
        assert (code, messages, call.metadata["seen"]) == (0, [b"abc"], "b")
        assert client.ask("/t.T/Stream", b"a", b"b", b"")[1:] == (0, [b"aa", b"bb", b""])
        assert client.ask("/t.T/None", b"")[1] == 12


def test_what_fails_at_grpcios_server_is_told():
    def fail(_, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no \N{SNOWMAN}\n%")

    with grpcio(fail) as (port, _), Connection(port) as client:
        call, code, messages = client.ask("/t.T/Unary", b"")
        assert (code, call.text, messages) == (5, "no \N{SNOWMAN}\n%", [])


@pytest.mark.parametrize("coding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_answers_are_expanded_within_their_bound(coding):
    with grpcio(echo, compression=coding) as (port, _):
        with Connection(port) as client:
            assert client.ask("/t.T/Unary", LARGE[:500_000])[1:] == (0, [LARGE[:500_000]])
        with Connection(port, message_max=10_000) as client:
            call, code, messages = client.ask("/t.T/Unary", LARGE[:500_000])
            assert (code, messages) == (13, []) and "10000" in call.text


def test_an_answer_beyond_the_bound_ends_its_call_and_no_other():
    with grpcio(echo) as (port, _), Connection(port, message_max=10_000) as client:
        call, code, _ = client.ask("/t.T/Unary", LARGE)
        assert code == 8 and "is the limit" in call.text
        assert client.ask("/t.T/Unary", b"abc")[1:] == (0, [b"abc"])


def test_a_cancelled_call_ends_and_no_other():
    with grpcio(echo) as (port, _), Connection(port) as client:
        call = client.session.start("/t.T/Stream")
        client.session.send(call, b"x")
        while call.id not in client.messages:
            client.pump()
        client.session.cancel(call)
        assert (call.code, call.text) == (1, "cancelled by the client")
        assert client.ask("/t.T/Unary", b"abc")[1:] == (0, [b"abc"])
        with pytest.raises(BadRequest, match="no further message"):
            client.session.send(call, b"y")


def test_a_server_that_leaves_is_told_of():
    with grpcio(echo) as (port, server), Connection(port) as client:
        call = client.session.start("/t.T/Stream")
        client.session.send(call, b"x")
        while call.id not in client.messages:
            client.pump()
        stopped = server.stop(0)
        client.until_ended(call)
        assert call.code in (1, 14)
        assert stopped.wait(SECONDS_MAX)


def test_what_is_no_http2_is_told_of():
    with socket.create_server(("127.0.0.1", 0)) as listener, Connection(listener.getsockname()[1]) as client:
        accepted, _ = listener.accept()
        call = client.session.start(LIVE)
        client.session.send(call, b"", last=True)
        client.session.outgoing()
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert client.pump() == []
        client.socket.sendall(client.session.outgoing())
        assert client.session.ended
        accepted.shutdown(socket.SHUT_WR)
        assert client.pump() == [call] and call.code == 14
        accepted.close()


@pytest.mark.skipif(NGHTTPD is None, reason="needs nghttpd (Debian's nghttp2-server)")
@pytest.mark.parametrize("receive_bytes", [1, 65536])
def test_nghttpd_answers(receive_bytes, tmp_path):
    """It sends back what it is sent, with a trailer: so it is a gRPC server of one method."""
    port = closed_port()
    command = [
        NGHTTPD,
        "--no-tls",
        "--echo-upload",
        "--trailer=grpc-status: 0",
        "-a",
        "127.0.0.1",
        "-d",
        str(tmp_path),
        str(port),
    ]
    with subprocess.Popen(command) as server:
        try:
            until(lambda: listens(port), "nghttpd listens")
            with Connection(port, receive_bytes) as client:
                body = LARGE[: 2000 if receive_bytes == 1 else None]
                assert client.ask("/", body, b"", b"x")[1:] == (0, [body, b"", b"x"])
        finally:
            server.terminate()
            server.wait(SECONDS_MAX)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(1, b"1n"), (99_999_999, b"99999999n"), (100_000_001, b"100001u"), (10**15, b"1000000S"), (1 << 62, b"76861434M")],
)
def test_timeouts_are_rounded_up(nanoseconds, text):
    assert timeout_text(nanoseconds) == text


@pytest.mark.parametrize(
    "pair", [("a b", "c"), (":path", "c"), ("grpc-x", "c"), ("TE", "c"), ("a", "\n"), ("a", b"c"), ("", "c")]
)
def test_what_is_no_metadata_is_refused(pair):
    with pytest.raises(BadRequest, match="metadata"):
        GrpcClientSession("h").start(LIVE, metadata=[pair])
