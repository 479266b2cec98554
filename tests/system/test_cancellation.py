"""Clients that leave, at every stage of a request, over HTTP and gRPC.

The real Triton 2.51 was asked: it goes on with what an HTTP client has left, and executes a request whose client left
while the one before it ran.  Neither is copied: its documentation promises more of the second.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.system.helpers import until

SECONDS_MAX = 60
DEADLINE_SECONDS = 4  # until then even a busy machine has begun what is to be cancelled
# Each execution says when it begins and ends, and runs until the file FOLDER/go is there.
TOLD = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

def say(*words):
    with open("FOLDER/told", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

class TritonPythonModel:
    def execute(self, requests):
        say("begins", *[r.request_id() for r in requests])
        while not os.path.exists("FOLDER/go"):
            time.sleep(0.002)
        say("ends", *[f"{r.request_id()}:{r.is_cancelled()}" for r in requests])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", self.input(r))]) for r in requests]

    def input(self, request):
        return pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
"""
STREAMS = (
    TOLD.partition("class TritonPythonModel")[0]
    + """
class TritonPythonModel:
    def execute(self, requests):
        import threading
        for r in requests:
            threading.Thread(target=self.work, args=(r.request_id(), r.get_response_sender())).start()

    def work(self, name, sender):
        say("begins", name)
        while not sender.is_cancelled():
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", np.zeros(1, "f4"))]))
            time.sleep(0.005)
        say("ends", f"{name}:True")
        sender.send(flags=1)
"""
)
IO = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
KINDS = {
    "default": (TOLD, ""),
    "dynamic": (TOLD, "max_batch_size: 1 dynamic_batching { }"),
    "priorities": (
        TOLD,
        "max_batch_size: 1 dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
    ),
    "limited": (TOLD, 'instance_group [ { rate_limiter { resources [ { name: "R" count: 1 } ] } } ]'),
}


class Stage:
    """One server, its models, and clients that ask and leave."""

    def __init__(self, server, folder, stub):
        self.server, self._folder, self._stub = server, folder, stub

    def told(self):
        path = self._folder / "told"
        return path.read_text().splitlines() if path.exists() else []

    def until_told(self, line):
        until(lambda: line in self.told(), line)

    def go(self):
        (self._folder / "go").touch()

    def message(self, model, id):
        made = service_pb2.ModelInferRequest(model_name=model, id=id)
        shape = [1] if model in ("default", "limited", "streams") else [1, 1]
        made.inputs.add(name="A", datatype="FP32", shape=shape)
        made.raw_input_contents.append(np.zeros(1, np.float32).tobytes())
        return made

    def grpc(self, model, id, **options):
        return self._stub.ModelInfer.future(self.message(model, id), **options)

    def stream(self, model, *ids, **options):
        """A ModelStreamInfer call that stays open."""
        hold = threading.Event()

        def requests():
            yield from (self.message(model, id) for id in ids)
            hold.wait(SECONDS_MAX)

        call = self._stub.ModelStreamInfer(requests(), **options)
        call.add_callback(hold.set)
        return call

    def http(self, model, id, path="infer"):
        shape = [1] if model in ("default", "limited", "streams") else [1, 1]
        tensor = {"name": "A", "shape": shape, "datatype": "FP32", "data": [0]}
        body = json.dumps({"A": 0, "id": id} if path != "infer" else {"id": id, "inputs": [tensor]}).encode()
        client = socket.create_connection(("127.0.0.1", self.server.port))
        head = f"POST /v2/models/{model}/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        return client

    def settle(self):
        """The server has read what came before this, on the gRPC connection and on others."""
        self._stub.ServerLive(service_pb2.ServerLiveRequest())
        assert self.server.ask("GET", "/v2/health/live")[0] == 200

    def fails(self, model):
        """Requests that failed, of all that are counted."""
        [stats] = self.server.ask("GET", f"/v2/models/{model}/stats")[1]["model_stats"]
        return stats["inference_stats"]["fail"]["count"]


@pytest.fixture
def stage(serve, write_model, tmp_path):
    """Start a server with one of KINDS, or with `streams`, a decoupled model."""
    channels = []

    def start(kind):
        code, config = KINDS.get(kind, (STREAMS, "model_transaction_policy { decoupled: true }"))
        write_model(kind, code.replace("FOLDER", str(tmp_path)), IO + config)
        server = serve("--rate-limit=execution_count").ready()
        port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
        channels.append(grpc.insecure_channel(f"127.0.0.1:{port}"))
        return Stage(server, tmp_path, service_pb2_grpc.GRPCInferenceServiceStub(channels[-1]))

    yield start
    for channel in channels:
        channel.close()


def leave(client):
    """What a client does that has enough: close a socket, cancel a call, or let its deadline pass."""
    if isinstance(client, socket.socket):
        client.close()
    elif client.time_remaining() is None:
        client.cancel()
    else:
        until(client.done, "the deadline passes")


WAYS = {
    "HTTP disconnect": lambda s, model, id: s.http(model, id),
    "gRPC cancel": lambda s, model, id: s.grpc(model, id),
    "gRPC deadline": lambda s, model, id: s.grpc(model, id, timeout=DEADLINE_SECONDS),
    "stream cancel": lambda s, model, id: s.stream(model, id),
    "stream deadline": lambda s, model, id: s.stream(model, id, timeout=DEADLINE_SECONDS),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_queued_request_is_dropped_and_a_running_one_is_told(stage, kind, way):
    s = stage(kind)
    running = WAYS[way](s, kind, "running")
    s.until_told("begins running")
    queued = WAYS[way](s, kind, "queued")
    until(lambda: s.server.pending(kind) == 1, "queued")
    leave(queued)
    until(lambda: s.server.pending(kind) == 0, "it has left the queue")
    leave(running)
    s.settle()
    last = s.grpc(kind, "last")
    s.go()
    last.result(timeout=SECONDS_MAX)
    assert [line for line in s.told() if line.startswith("ends")] == ["ends running:True", "ends last:False"]
    assert "begins queued" not in s.told()
    assert s.fails(kind) == canceled(s.server, kind) == 1  # what was executed counts as what came of it


@pytest.mark.parametrize("way", ["stream cancel", "stream deadline", "HTTP disconnect"])
def test_a_decoupled_model_is_told(stage, way):
    s = stage("streams")
    if way.startswith("HTTP"):
        client = s.http("streams", "x", "generate_stream")
        assert client.recv(100)
    else:
        client = s.stream("streams", "x", timeout=DEADLINE_SECONDS if "deadline" in way else None)
        with contextlib.suppress(grpc.RpcError):
            next(iter(client))
    leave(client)
    until(lambda: any(line.startswith("ends") for line in s.told()), "the model is told")


def test_a_request_that_is_cancelled_before_its_body_has_come_is_forgotten(stage):
    s = stage("default")
    client = socket.create_connection(("127.0.0.1", s.server.port))
    client.sendall(b"POST /v2/models/default/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    client.close()
    s.go()
    assert s.grpc("default", "next").result(timeout=SECONDS_MAX).id == "next"
    assert s.told() == ["begins next", "ends next:False"] and s.fails("default") == 0


def metrics(server):
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.said(lambda r: r.get("event") == "ready", "ready")["metrics_port"], timeout=60
    )
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def canceled(server, model):
    return float(metrics(server)[f'nv_inference_request_failure{{model="{model}",reason="CANCELED",version="1"}}'])
