"""Kept answers with the real server and real clients: every way to ask, real Redis, slow readers, floods."""

from __future__ import annotations

import http.client
import json
import queue
import re
import socket
import struct
import urllib.request
import uuid

import numpy as np
import pytest
from tritonclient import grpc as grpcclient
from tritonclient import http as httpclient
from tritonclient.utils import shared_memory as shm

from tests.redis_helpers import RedisServer, needs_redis
from tests.system.helpers import CONFIG, until

# tritonclient leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CACHED = CONFIG + "response_cache { enable: true }\n"
LOCAL = "--cache-config=local,size=67108864"
# Each execution gives another answer: what is equal was kept.
COUNTING = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.calls = 0

    def execute(self, requests):
        answers = []
        for request in requests:
            self.calls += 1
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            a[:] += 1000 * self.calls  # in place: the key was made before
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", a)]))
        return answers
"""
TEXTS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.calls = 0

    def execute(self, requests):
        answers = []
        for request in requests:
            self.calls += 1
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            b = np.array([text + b"/%d" % self.calls for text in a.ravel()], dtype=np.object_).reshape(a.shape)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", b)]))
        return answers
"""


def infer_http(server, values, model="m", **more):
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        given = httpclient.InferInput("A", list(values.shape), "FP32")
        given.set_data_from_numpy(values)
        return client.infer(model, [given], **more)


def numbers(*values):
    return np.array(values, dtype=np.float32)


def counts(server, model="m"):
    stats = server.ask("GET", f"/v2/models/{model}/stats")[1]["model_stats"][0]
    inference = stats["inference_stats"]
    return inference["success"]["count"], inference["cache_hit"]["count"], inference["cache_miss"]["count"], \
        stats["execution_count"]  # fmt: skip


@pytest.fixture
def served(write_model, serve):
    def start(*flags, code=COUNTING, config=CACHED, labels=""):
        folder = write_model("m", code, config)
        (folder / "labels.txt").write_text(labels)
        server = serve(*(flags or (LOCAL,))).ready()
        server.folder = folder
        server.grpc_port = next(r["grpc_port"] for r in server.log if r.get("event") == "ready")
        server.metrics_port = next(r["metrics_port"] for r in server.log if r.get("event") == "ready")
        return server

    return start


# ---- every way to ask


def test_http_and_grpc_json_and_binary_share_answers(served):
    server = served()
    first = infer_http(server, numbers(1, 2)).as_numpy("B").tolist()
    assert first == [1001, 1002]
    status, answer = server.infer("m", [1, 2])
    assert (status, answer["outputs"][0]["data"]) == (200, first)
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        given = grpcclient.InferInput("A", [2], "FP32")
        given.set_data_from_numpy(numbers(1, 2))
        assert client.infer("m", [given], request_id="x").as_numpy("B").tolist() == first
        stats = client.get_inference_statistics("m").model_stats[0].inference_stats
        assert (stats.cache_hit.count, stats.cache_miss.count, stats.success.count) == (2, 1, 3)
    assert infer_http(server, numbers(1, 3)).as_numpy("B").tolist() == [2001, 2003]
    assert counts(server) == (4, 2, 2, 2)


def test_a_stream_of_hits_comes_back_in_order(served):
    server = served()
    for i in range(7):
        server.infer("m", [i])
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(200):
            given = grpcclient.InferInput("A", [1], "FP32")
            given.set_data_from_numpy(numbers(i % 7))
            client.async_stream_infer("m", [given], request_id=str(i))
        got = [answers.get(timeout=60) for _ in range(200)]
        client.stop_stream()
    assert [error for _, error in got if error] == []
    assert [result.get_response().id for result, _ in got] == [str(i) for i in range(200)]
    assert [result.as_numpy("B")[0] % 1000 for result, _ in got] == [i % 7 for i in range(200)]
    assert counts(server) == (207, 200, 7, 7)


def test_generate_is_answered_from_the_cache(served):
    server = served()
    first = server.ask("POST", "/v2/models/m/generate", {"A": 5})
    assert first[0] == 200 and first[1]["B"] == 1005
    assert server.ask("POST", "/v2/models/m/generate", {"A": 5})[1]["B"] == 1005


def test_metrics_tell_of_hits(served):
    server = served()
    for _ in range(3):
        server.infer("m")
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert 'nv_cache_num_hits_per_model{model="m",version="1"} 2.0' in text
    assert 'nv_cache_num_misses_per_model{model="m",version="1"} 1.0' in text
    assert re.search(r"^nv_cache_num_entries 1\.0$", text, re.MULTILINE)
    assert 'nv_inference_count{model="m",version="1"} 1.0' in text


def test_shapes_and_parameters_tell_requests_apart(served):
    server = served(config=CACHED.replace("[ -1 ]", "[ -1, -1 ]"), code=COUNTING.replace("a[:]", "a"))
    flat = numbers(1, 2, 3, 4)
    answers = [
        infer_http(server, flat.reshape(shape), **more).as_numpy("B").ravel()[0]
        for shape, more in (((1, 4), {}), ((4, 1), {}), ((2, 2), {}), ((2, 2), {"parameters": {"p": 1}}), ((1, 4), {}))
    ]
    assert answers == [1001, 2001, 3001, 4001, 1001]


def test_strings(served):
    server = served(code=TEXTS, config=CACHED.replace("TYPE_FP32", "TYPE_STRING"))
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        for expected in ([b"a/1", b"\xff\0bc/1"], [b"a/1", b"\xff\0bc/1"]):
            given = httpclient.InferInput("A", [2], "BYTES")
            given.set_data_from_numpy(np.array([b"a", b"\xff\0bc"], dtype=np.object_))
            assert client.infer("m", [given]).as_numpy("B").tolist() == expected


def test_batches_are_kept_whole(served):
    config = CACHED + "max_batch_size: 8\ndynamic_batching { }\n"
    server = served(config=config)
    two = infer_http(server, numbers(1, 2).reshape(2, 1)).as_numpy("B").tolist()
    assert infer_http(server, numbers(1, 2).reshape(2, 1)).as_numpy("B").tolist() == two
    assert infer_http(server, numbers(1).reshape(1, 1)).as_numpy("B").tolist() != two[:1]
    assert counts(server) == (3, 1, 2, 2)


def test_classes_of_a_kept_answer(served):
    server = served(config=CACHED.replace('name: "B"', 'name: "B" label_filename: "labels.txt"'), labels="a\nb\nc\n")
    first = infer_http(server, numbers(1, 3, 2)).as_numpy("B").tolist()
    assert first == [1001, 1003, 1002]
    outputs = [httpclient.InferRequestedOutput("B", class_count=2)]
    assert infer_http(server, numbers(1, 3, 2), outputs=outputs).as_numpy("B").tolist() == [
        b"1003.000000:1:b", b"1002.000000:2:c"]  # fmt: skip
    assert counts(server)[1] == 1


def test_inputs_and_outputs_in_a_clients_memory(served):
    server = served(LOCAL, "--allow-client-shm=true")
    name = f"tisfast_cache_{uuid.uuid4().hex}"
    region = shm.create_shared_memory_region(name, f"/{name}", 1 << 20)
    try:
        with httpclient.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            client.register_system_shared_memory(name, f"/{name}", 1 << 20)
            values = np.arange(100_000, dtype=np.float32)
            answers = []
            for _ in range(3):
                shm.set_shared_memory_region(region, [values])
                given = httpclient.InferInput("A", [len(values)], "FP32")
                given.set_shared_memory(name, values.nbytes)
                wanted = httpclient.InferRequestedOutput("B", binary_data=True)
                wanted.set_shared_memory(name, values.nbytes, offset=1 << 19)
                client.infer("m", [given], outputs=[wanted])
                answers.append(shm.get_contents_as_numpy(region, np.float32, [len(values)], offset=1 << 19).copy())
            assert all((answer == values + 1000).all() for answer in answers)
            assert (infer_http(server, values).as_numpy("B") == values + 1000).all()
            assert counts(server) == (4, 3, 1, 1)
    finally:
        shm.destroy_shared_memory_region(region)


def test_errors_are_computed_again(served):
    count = "self.calls += 1\n"
    server = served(code=COUNTING.replace(count, f"{count}            assert self.calls > 1\n"))
    assert server.infer("m")[0] == 500
    assert server.infer("m")[1]["outputs"][0]["data"] == [2001]
    assert server.infer("m")[1]["outputs"][0]["data"] == [2001]


def test_a_model_without_the_switch_computes(served):
    server = served(config=CONFIG)
    assert [server.infer("m")[1]["outputs"][0]["data"] for _ in range(2)] == [[1001], [2001]]
    assert counts(server) == (2, 0, 0, 2)


def test_a_switch_without_a_cache_is_told(served):
    server = served("--log-info=true")
    assert [server.infer("m")[1]["outputs"][0]["data"] for _ in range(2)] == [[1001], [2001]]
    server.says("the answers of 'm' version 1 are not kept")


# ---- ensembles

ENSEMBLE = """
platform: "ensemble"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "m" model_version: -1 input_map { key: "A" value: "A" } output_map { key: "B" value: "between" } },
  { model_name: "n" model_version: -1 input_map { key: "A" value: "between" } output_map { key: "B" value: "B" } }
] }
"""


def test_a_kept_answer_of_an_ensemble_skips_its_steps(served, write_model):
    write_model("n", COUNTING)
    write_model("e", config=ENSEMBLE + "response_cache { enable: true }")
    server = served(config=CONFIG)
    assert [server.infer("e")[1]["outputs"][0]["data"] for _ in range(3)] == [[2001]] * 3
    assert server.infer("e", [2])[1]["outputs"][0]["data"] == [4002]
    assert [counts(server, model)[:3] for model in ("e", "m", "n")] == [(4, 2, 2), (2, 0, 0), (2, 0, 0)]


def test_a_steps_kept_answer_goes_to_the_next_step_and_stays_what_it_is(served, write_model):
    write_model("n", COUNTING)
    write_model("e", config=ENSEMBLE)
    server = served()
    values = np.arange(150_000, dtype=np.float32)
    for calls in (1, 2, 3):  # n writes to its input, which is the kept answer of m
        assert (infer_http(server, values, "e").as_numpy("B") == values + 1000 + 1000 * calls).all()
    assert counts(server)[:3] == (3, 2, 1)
    assert (infer_http(server, values).as_numpy("B") == values + 1000).all()


# ---- floods and slow readers


def test_a_flood_of_pipelined_hits_comes_back_in_order(served):
    server = served()
    bodies = [json.dumps({"id": str(i), "inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [i % 7]}]})
              for i in range(3000)]  # fmt: skip
    text = "".join(f"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}" for body in bodies)
    for i in range(7):
        server.infer("m", [i])
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(text.encode())
        ids = []
        file = connection.makefile("rb")
        for _ in bodies:
            length = 0
            while line := file.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            ids.append(json.loads(file.read(length))["id"])
    assert ids == [str(i) for i in range(3000)]
    assert counts(server) == (3007, 3000, 7, 7)


def test_what_is_evicted_while_it_is_sent_arrives_whole(served):
    server = served("--cache-config=local,size=20000000")
    values = np.arange(3_000_000, dtype=np.float32)  # 12 MB: one fits
    infer_http(server, values)
    head = json.dumps({"inputs": [{"name": "A", "shape": [len(values)], "datatype": "FP32",
                                   "parameters": {"binary_data_size": values.nbytes}}],
                       "parameters": {"binary_data_output": True}}).encode()  # fmt: skip
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(
            f"POST /v2/models/m/infer HTTP/1.1\r\nInference-Header-Content-Length: {len(head)}\r\n"
            f"Content-Length: {len(head) + values.nbytes}\r\n\r\n".encode()
            + head
            + values.tobytes()
        )
        assert slow.recv(1, socket.MSG_PEEK)  # it has begun
        for i in range(20):
            infer_http(server, np.full(700_000, i, dtype=np.float32))
        answer = http.client.HTTPResponse(slow)
        answer.begin()
        body = answer.read()
    got = np.frombuffer(body[-values.nbytes :], dtype=np.float32)
    assert (got == values + 1000).all()
    assert counts(server)[1] == 1


def test_a_client_that_leaves_in_the_middle_of_a_hit(served):
    server = served()
    values = np.arange(3_000_000, dtype=np.float32)
    infer_http(server, values)
    head = json.dumps({"inputs": [{"name": "A", "shape": [len(values)], "datatype": "FP32",
                                   "parameters": {"binary_data_size": values.nbytes}}],
                       "parameters": {"binary_data_output": True}}).encode()  # fmt: skip
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(
                f"POST /v2/models/m/infer HTTP/1.1\r\nInference-Header-Content-Length: {len(head)}\r\n"
                f"Content-Length: {len(head) + values.nbytes}\r\n\r\n".encode()
                + head
                + values.tobytes()
            )
            connection.recv(1, socket.MSG_PEEK)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert (infer_http(server, values).as_numpy("B") == values + 1000).all()
    until(lambda: arena_used(server) == 0, "the requests' memory is given back")


def arena_used(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return float(re.search(r'^tisfast_arena_bytes\{kind="used",model="m",version="1"\} (\S+)', text, re.MULTILINE)[1])


# ---- Redis


@pytest.fixture
def redis(tmp_path):
    with RedisServer(tmp_path) as running:
        yield running


def flags_of(redis, timeout_ms=60_000):
    """What is in Redis is found however busy the machine is, unless a test says how long a lookup may take."""
    settings = {"host": "127.0.0.1", "port": redis.port, "socket_timeout": timeout_ms}
    return tuple(f"--cache-config=redis,{name}={value}" for name, value in settings.items())


def skipped(server):
    return float(re.search(r"^tisfast_cache_skipped_total(?:\{.*\})? (\S+)", server.metrics(), re.MULTILINE)[1])


def until_kept(redis, n):
    def count():
        with redis.client() as client:
            return client.dbsize()

    until(lambda: count() == n, f"{n} answers in Redis")


@needs_redis
def test_servers_share_answers_in_redis(served, serve, redis):
    one = served(*flags_of(redis))
    values = np.arange(200_000, dtype=np.float32)
    assert (infer_http(one, values).as_numpy("B") == values + 1000).all()
    until_kept(redis, 1)
    other = serve(*flags_of(redis)).ready()
    assert (infer_http(other, values).as_numpy("B") == values + 1000).all()
    assert counts(one) == (1, 0, 1, 1)
    assert counts(other) == (1, 1, 0, 0)


@needs_redis
def test_a_changed_model_does_not_get_the_old_ones_answers(served, serve, redis):
    one = served(*flags_of(redis))
    one.infer("m")
    until_kept(redis, 1)
    one.end()
    (one.folder / "1" / "model.py").write_text(COUNTING.replace("1000", "5000"))
    changed = serve(*flags_of(redis)).ready()
    assert changed.infer("m")[1]["outputs"][0]["data"] == [5001]


@needs_redis
def test_a_redis_that_is_killed_hung_and_back_costs_no_request(served, redis):
    server = served(*flags_of(redis, 2_000))
    assert server.infer("m")[1]["outputs"][0]["data"] == [1001]
    until_kept(redis, 1)
    assert server.infer("m")[1]["outputs"][0]["data"] == [1001]
    redis.kill()
    for _ in range(20):
        assert server.infer("m")[0] == 200
    server.says("does not answer")
    redis.start()
    server.says("answers again")
    assert sum("does not answer" in record["message"] for record in server.log) == 1
    seen = len(server.log)
    server.infer("m")
    until_kept(redis, 1)
    redis.hang()
    before = skipped(server)
    for _ in range(20):
        assert server.infer("m")[0] == 200
    assert skipped(server) - before == 19  # one has waited for it
    server.said(lambda r: "does not answer: no answer within 2000 ms" in r["message"], "that Redis hangs", seen)
    redis.go_on()
    server.said(lambda r: "answers again" in r["message"], "that Redis is back", seen)
    assert server.end() == 0


@needs_redis
def test_a_server_without_its_redis_starts_and_serves(served, tmp_path):
    gone = RedisServer(tmp_path)
    server = served(*flags_of(gone))
    assert server.infer("m")[0] == 200
    assert counts(server) == (1, 0, 1, 1)
    assert server.end() == 0
