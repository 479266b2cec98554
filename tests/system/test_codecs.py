"""Large bodies and answers of a real server: they are right, and hold up nobody; processes that die, stand still or are
left by their client cost one request at most."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import struct
import threading
import urllib.request
import zlib
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient

from tests.system.codec_helpers import ECHO, STREAM, codecs
from tests.system.helpers import CONFIG, until
from tests.system.loop_watch import Looks
from tests.waiting import has_ended

COUNT = 100_000  # floats: a body of 1 MB and more
HELD_SECONDS_MAX = 0.5  # 7 ms are measured; a bomb takes many seconds when the event loop reads it
TEXTS = CONFIG.replace("TYPE_FP32", "TYPE_STRING")


def values():
    return np.random.default_rng(1).random(COUNT, dtype=np.float32)


def body_of(data, datatype="FP32", **more):
    return json.dumps(
        {"inputs": [{"name": "A", "shape": [len(data)], "datatype": datatype, "data": data}], **more}
    ).encode()


def post(server, model, body, headers=None, call="infer"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)  # of bombs, on a busy machine
    with contextlib.closing(connection):
        connection.request("POST", f"/v2/models/{model}/{call}", body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def output(text):
    return json.loads(text)["outputs"][0]["data"]


@pytest.fixture
def server(serve, write_model):
    write_model("echo", ECHO)
    write_model("texts", ECHO, TEXTS)
    write_model("small", ECHO)
    write_model("stream", STREAM, CONFIG + "model_transaction_policy { decoupled: True }")
    return serve("--model-control-mode=explicit", "--load-model=*").ready()


def test_a_large_json_body_and_its_answer(server):
    status, _, text = post(server, "echo", body_of(values().tolist(), id="x"))
    assert status == 200
    assert json.loads(text)["id"] == "x"
    assert np.array_equal(np.array(output(text), np.float32), values())
    assert codecs(server)


def test_small_requests_start_no_process(server):
    assert server.infer("small")[0] == 200
    assert codecs(server) == []


@pytest.mark.parametrize(("model", "status"), [("stream", 501), ("nobody", 404)])
def test_a_compressed_body_for_a_model_that_cannot_be_asked_is_refused_at_once(server, model, status):
    packed = gzip.compress(body_of([0.5] * COUNT))
    assert len(packed) < 64 * 1024  # small as it comes, large as it expands
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    with contextlib.closing(connection):
        for _ in range(2):
            connection.request("POST", f"/v2/models/{model}/infer", packed, {"Content-Encoding": "gzip"})
            answer = connection.getresponse()
            assert answer.status == status and b"error" in answer.read()
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().status == 200


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_body_and_a_compressed_answer(server, coding, compress):
    headers = {"Content-Encoding": coding, "Accept-Encoding": coding}
    status, headers, text = post(server, "echo", compress(body_of(values().tolist())), headers)
    assert (status, headers["Content-Encoding"]) == (200, coding)
    assert np.array_equal(np.array(output(zlib.decompress(text, wbits=47)), np.float32), values())


def test_json_in_and_tensors_out_compressed(server):
    body = body_of(values().tolist(), parameters={"binary_data_output": True})
    status, headers, answer = post(server, "echo", body, {"Accept-Encoding": "gzip"})
    whole = gzip.decompress(answer)
    head = int(headers["Inference-Header-Content-Length"])
    assert status == 200
    assert whole[head:] == values().tobytes()


def test_json_in_and_tensors_out(server):
    status, headers, answer = post(server, "echo", body_of(values().tolist(), parameters={"binary_data_output": True}))
    assert status == 200
    assert answer[int(headers["Inference-Header-Content-Length"]) :] == values().tobytes()


def test_a_chunked_body(server):
    text = body_of(values().tolist())
    status, _, answer = post(server, "echo", (text[i : i + 5000] for i in range(0, len(text), 5000)))
    assert status == 200
    assert np.array_equal(np.array(output(answer), np.float32), values())


def test_generate(server):
    status, _, text = post(server, "echo", json.dumps({"A": values().tolist()}), call="generate")
    assert status == 200
    assert np.array_equal(np.array(json.loads(text)["B"], np.float32), values())


def test_events_come_in_their_order(server):
    status, _, text = post(server, "stream", json.dumps({"A": [0.0] * COUNT}), call="generate_stream")
    events = [json.loads(event.removeprefix("data: ")) for event in text.decode().split("\n\n")[:-1]]
    assert (status, [event["B"][-1] for event in events]) == (200, [0.0, 1.0, 2.0])


def test_texts_and_what_is_no_number(server):
    texts = ['"\\é\n' * 5, "", "x"] * 20_000
    status, _, answer = post(server, "texts", body_of(texts, "BYTES"))
    assert (status, output(answer)) == (200, texts)
    odd = body_of([1.5] * COUNT).replace(b"1.5]", b"NaN]")
    status, _, answer = post(server, "echo", odd)
    assert (status, answer[-8:]) == (200, b",NaN]}]}")


def test_binary_strings_are_counted_elsewhere(server):
    tail = struct.pack("<I", 0) * 600_000
    entry = {"name": "A", "shape": [600_000], "datatype": "BYTES", "parameters": {"binary_data_size": len(tail)}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    status, headers, answer = post(server, "texts", head + tail, {"Inference-Header-Content-Length": str(len(head))})
    assert (status, answer[int(headers["Inference-Header-Content-Length"]) :] == tail) == (200, True)
    assert codecs(server)


def test_requests_of_one_connection_are_answered_in_order(server):
    parts = []
    for n in range(6):
        body = body_of([float(n)] * (COUNT if n % 2 == 0 else 1), id=str(n))
        parts.append(
            b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        threading.Thread(target=client.sendall, args=(b"".join(parts),)).start()
        found = []
        shared = client.makefile("rb")
        for _ in range(6):
            length = 0
            while line := shared.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answer = json.loads(shared.read(length))
            found.append((answer["id"], answer["outputs"][0]["data"][-1]))
        shared.close()
    assert found == [(str(n), float(n)) for n in range(6)]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_grpc_messages(server, connect, compression):
    client = connect(server, grpcclient)
    tensor = grpcclient.InferInput("A", [COUNT], "FP32")
    tensor.set_data_from_numpy(values())
    answer = client.infer("echo", [tensor], compression_algorithm=compression)
    assert np.array_equal(answer.as_numpy("B"), values())


def stopped(server):
    """A codec process that stands still, as the only one."""
    post(server, "echo", body_of(values().tolist()))
    (codec,) = codecs(server)
    codec.suspend()
    return codec


@pytest.fixture
def one_codec(serve, write_model):
    write_model("echo", ECHO)
    write_model("small", ECHO)
    return serve("--model-control-mode=explicit", "--load-model=*", "--codec-processes=1").ready()


def asking(server, body, answers):
    thread = threading.Thread(target=lambda: answers.append(post(server, "echo", body)))
    thread.start()
    return thread


def test_a_killed_process_costs_its_request(one_codec):
    codec = stopped(one_codec)
    answers = []
    thread = asking(one_codec, body_of(values().tolist()), answers)
    until(lambda: one_codec.infer("small")[0] == 200, "others are served meanwhile")
    codec.kill()
    thread.join()
    assert answers[0][0] in (200, 503)  # it may be killed before the request is there
    assert post(one_codec, "echo", body_of(values().tolist()))[0] == 200


def test_a_client_that_leaves_makes_room_for_others(one_codec):
    codec = stopped(one_codec)
    body = body_of(values().tolist())
    head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", one_codec.port)) as client:
        client.sendall(head + body)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    status, _, _ = post(one_codec, "echo", body)  # the one that stood still was ended
    assert status == 200
    until(lambda: not psutil.pid_exists(codec.pid), "it has gone")


def test_a_request_ends_with_the_model_that_it_began_with(one_codec):
    codec = stopped(one_codec)
    answers = []
    thread = asking(one_codec, body_of(values().tolist()), answers)
    until(lambda: used_bytes(one_codec) >= 1 << 20, "the body has come")
    assert one_codec.ask("POST", "/v2/repository/models/echo/unload", {})[0] == 200
    codec.resume()
    thread.join()
    assert answers[0][0] == 200


def used_bytes(server):
    """Of the input arena of `echo`."""
    port = server.says("is ready after")["metrics_port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("tisfast_arena_bytes") and 'kind="used"' in line and '"echo"' in line
    )


def at_once(server, bodies):
    """The statuses of requests that the server finds all in one turn of its loop."""
    with contextlib.ExitStack() as stack:
        clients = []
        for body in bodies:
            clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60)))
            head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            clients[-1].sendall(head + body[:-1])
        post(server, "echo", body_of([1.0]))  # it has read what came before
        server.process.send_signal(signal.SIGSTOP)
        for client, body in zip(clients, bodies, strict=True):
            client.sendall(body[-1:])
        server.process.send_signal(signal.SIGCONT)
        answers = [client.makefile("rb") for client in clients]
        return [int(answer.readline().split()[1]) for answer in answers]


def test_short_texts_of_many_connections_are_shared_with_codec_processes(serve, write_model):
    """One of 60 KB is read on the loop; of 32 in one moment the loop reads what takes some milliseconds."""
    write_model("echo", ECHO)
    server = serve().ready()
    body = body_of([0.125] * 7_500, parameters={"binary_data_output": True})  # its answer takes no codec
    assert 50_000 < len(body) < 64 * 1024
    assert at_once(server, [body]) == [200] and codecs(server) == []
    assert at_once(server, [body] * 32) == [200] * 32
    assert codecs(server)


def test_a_text_below_the_flag_is_read_on_the_loop_however_long(serve, write_model):
    write_model("echo", ECHO)
    server = serve("--codec-bytes-min=2000000").ready()
    body = body_of([0.125] * 100_000, parameters={"binary_data_output": True})
    assert at_once(server, [body]) == [200] and codecs(server) == []


def test_processes_die_with_the_server_and_leave_nothing(one_codec):
    before = set(os.listdir("/dev/shm"))
    post(one_codec, "echo", body_of(values().tolist()))
    (codec,) = codecs(one_codec)
    one_codec.end(signal.SIGKILL)
    until(lambda: has_ended(codec), "the codec has gone")
    new = set(os.listdir("/dev/shm")) - before  # those of tests beside this one go by themselves
    until(lambda: not new & set(os.listdir("/dev/shm")), "nothing is left in /dev/shm")


def test_the_server_ends_with_what_is_being_read(one_codec):
    stopped(one_codec).resume()
    assert one_codec.end() == 0
    assert not Path(f"/proc/{one_codec.process.pid}").exists()


BOMBS = {
    "inf": (b'{"inputs":[' + b"Inf," * 16_000_000 + b"1]}", 400),
    "lists": (b'{"inputs":[' + b"[]," * 22_000_000 + b"1]}", 400),
    "floats": (b'{"inputs":[' + b"1.5," * 16_000_000 + b"1]}", 400),
    "zeros": (bytes(64 << 20), 500),  # no JSON at all: Triton's status
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_hold_up_nobody(serve, write_model, tmp_path, name):
    """64 MB in 65 KB of gzip."""
    looks = Looks(tmp_path)
    for model in ("echo", "small"):
        write_model(model)
    patience = "from tisfast import limits; limits.CODEC_JOB_SECONDS_MAX = 600"  # a busy machine may need a minute
    server = serve(fault=f"{looks.fault}\n{patience}").ready()
    body, status = BOMBS[name]
    bomb = gzip.compress(body)
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(post(server, "echo", bomb, {"Content-Encoding": "gzip"})[0]))
        for _ in range(2)
    ]
    looks.forget()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert server.infer("small")[0] == 200
        threads[0].join(0.2)
    assert statuses == [status] * 2
    assert looks.longest() < HELD_SECONDS_MAX
