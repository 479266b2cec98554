"""What happens when a gRPC server is not there, goes, stalls, says what it likes or does not speak gRPC."""

from __future__ import annotations

import socket
import threading
from concurrent import futures
from contextlib import contextmanager

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.client.helpers import answering, speak_http_1
from tisfast.client import BadResponse, Client, ConnectFailed, ConnectionLost, Retries, TimedOut, TisError, Unavailable

A = np.ones(1, np.float32)
AT_ONCE = Retries(count=2, pause_seconds=0.001)
METADATA = pb.ModelMetadataResponse(name="m", inputs=[{"name": "A", "datatype": "FP32", "shape": [-1]}])
GOOD = pb.ModelInferResponse(
    model_name="m", outputs=[{"name": "B", "datatype": "FP32", "shape": [1]}], raw_output_contents=[A.tobytes()]
)


@contextmanager
def server(infer):
    """grpcio's own server; infer: bytes and context to bytes."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            method = details.method.rpartition("/")[2]
            if method == "ModelMetadata":
                return grpc.unary_unary_rpc_method_handler(lambda *_: METADATA.SerializeToString())
            return grpc.unary_unary_rpc_method_handler(infer)

    made = grpc.server(futures.ThreadPoolExecutor(4), [Handler()])
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        made.stop(None).wait(60)


def test_what_the_server_says_is_for_later_is_asked_again():
    asked = []

    def infer(_, context):
        asked.append(1)
        if len(asked) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the queue is full")
        return GOOD.SerializeToString()

    with server(infer) as url, Client(url, retries=AT_ONCE) as client:
        assert client.model("m")(A).B.tolist() == [1] and len(asked) == 3


def test_retries_have_an_end():
    asked = []

    def infer(_, context):
        asked.append(1)
        context.abort(grpc.StatusCode.UNAVAILABLE, "the queue is full")

    with server(infer) as url:
        with Client(url, retries=AT_ONCE) as client, pytest.raises(Unavailable, match="the queue is full"):
            client.model("m")(A)
        assert len(asked) == 3
        with Client(url, retries=0) as client, pytest.raises(Unavailable):
            client.model("m")(A)
        assert len(asked) == 4


def test_the_server_is_told_of_the_timeout():
    left = []

    def infer(_, context):
        left.append(context.time_remaining())
        return GOOD.SerializeToString()

    with server(infer) as url, Client(url) as client:
        client.model("m")(A, timeout=30)
        client.model("m")(A)
        assert 0 < left[0] <= 30 and (left[1] is None or left[1] > 1e6)


def test_a_server_that_stalls_is_waited_for_no_longer_than_asked():
    go, ended = threading.Event(), threading.Event()

    def infer(_, context):
        if not context.add_callback(ended.set):  # it has ended already
            ended.set()
        go.wait(60)
        return GOOD.SerializeToString()

    with server(infer) as url, Client(url) as client:
        model = client.model("m")
        model.metadata()
        with pytest.raises(TimedOut):
            model(A, timeout=1)  # by then the server has the call
        assert ended.wait(60)
        go.set()


@pytest.mark.parametrize("answer", [b"\xff\xff\xff", b"", GOOD.SerializeToString()[:-3]])
def test_garbage_is_a_bad_response_or_has_no_outputs(answer):
    with server(lambda *_: answer) as url, Client(url) as client:
        if answer:
            with pytest.raises(BadResponse):
                client.model("m")(A)
        else:
            assert len(client.model("m")(A)) == 0


def test_headers_reach_the_server_and_compression_is_understood():
    seen = []

    def infer(request, context):
        seen.append(dict(context.invocation_metadata()))
        return request and GOOD.SerializeToString()

    with server(infer) as url, Client(url, token="t0", headers={"x-a": "b"}, compression="gzip") as client:
        assert client.model("m")(A, headers={"x-c": "d"}).B.tolist() == [1]
        assert {"authorization": "Bearer t0", "x-a": "b", "x-c": "d"}.items() <= seen[0].items()


def test_no_server_and_one_that_goes():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Client(f"grpc://127.0.0.1:{port}", retries=0) as client, pytest.raises(ConnectFailed):
        client.live()
    with (
        answering(lambda connection: connection.recv(1)) as address,
        Client(f"grpc://{address}", retries=0) as client,
        pytest.raises(ConnectionLost, match="lost behind the request"),
    ):
        client.live()


def test_a_server_that_speaks_http_1():
    with (
        answering(speak_http_1) as address,
        Client(f"grpc://{address}") as client,
        pytest.raises(BadResponse, match="does not speak gRPC"),
    ):
        client.live()
    with server(lambda *_: b"") as url, Client(url.replace("grpc", "http")) as client, pytest.raises(TisError):
        client.metadata()
