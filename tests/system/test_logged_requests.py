"""The access log: a line for each request, over HTTP and gRPC, in a file or in the verbose log."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest
from tritonclient import grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.system.helpers import until

QUIET = ("--log-info=false",)


def lines(path, count):
    """The objects in a file, once there are so many."""
    until(lambda: path.exists() and len(path.read_text().splitlines()) >= count, f"{count} lines")
    return [json.loads(line) for line in path.read_text().splitlines()]


def inference(module, values=(1.0,)):
    tensor = module.InferInput("A", [len(values)], "FP32")
    tensor.set_data_from_numpy(np.array(values, np.float32))
    return [tensor]


def test_requests_over_http_have_a_line_each(serve, write_model, tmp_path):
    write_model("m")
    path = tmp_path / "access.log"
    server = serve(f"--access-log={path}").ready()
    body = {"id": "one two", "inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]}
    server.ask("POST", "/v2/models/m/infer", body)
    server.ask("POST", "/v2/models/m/infer", {"inputs": []})
    server.ask("GET", "/v2/models/nobody/config")
    server.ask("GET", "/v2/health/ready")
    good, bad, unknown, health = lines(path, 4)
    assert (good["protocol"], good["method"], good["target"]) == ("HTTP", "POST", "/v2/models/m/infer")
    assert (good["model"], good["status"], good["id"]) == ("m", 200, "one two")
    assert good["received_bytes"] == len(json.dumps(body)) and good["sent_bytes"] > 100
    assert 0 < good["milliseconds"] < 60_000 and good["client"].startswith("127.0.0.1:") and good["time"].endswith("Z")
    assert (bad["status"], bad["model"]) == (400, "m") and "id" not in bad
    assert (unknown["status"], unknown["model"]) == (404, "nobody")
    assert (health["status"], "model" in health) == (200, False)


def test_what_is_no_request_has_a_line_too(serve, write_model, tmp_path):
    write_model("m")
    path = tmp_path / "access.log"
    server = serve(f"--access-log={path}").ready()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n")
        while connection.recv(4096):
            pass
    good, bad = lines(path, 2)
    assert (good["status"], good["target"]) == (200, "/v2/health/live")
    assert (bad["status"], bad["method"], bad["target"]) == (400, "-", "-")


def test_calls_over_grpc_have_a_line_each(serve, write_model, connect, tmp_path):
    write_model("m")
    path = tmp_path / "access.log"
    server = serve(f"--access-log={path}").ready()
    client = connect(server, grpcclient)
    client.infer("m", inference(grpcclient), request_id="r1")
    with pytest.raises(InferenceServerException):
        client.infer("nobody", inference(grpcclient))
    assert client.is_server_live()
    answers = []
    client.start_stream(lambda result, error: answers.append(error or result))
    client.async_stream_infer("m", inference(grpcclient), request_id="r2")
    until(lambda: answers, "an answer")
    client.stop_stream()
    good, bad, live, stream = lines(path, 4)
    service = "/inference.GRPCInferenceService/"
    assert (good["protocol"], good["target"], good["status"]) == ("gRPC", service + "ModelInfer", 0)
    assert (good["model"], good["id"]) == ("m", "r1") and "method" not in good
    assert good["received_bytes"] > 4 and good["sent_bytes"] > 4 and good["client"].startswith("127.0.0.1:")
    assert bad["status"] == 5
    assert (live["target"], live["status"]) == (service + "ServerLive", 0)
    assert (stream["target"], stream["model"], stream["id"]) == (service + "ModelStreamInfer", "m", "r2")


def test_lines_go_on_in_a_file_anew_when_the_old_one_was_moved(serve, write_model, tmp_path):
    write_model("m")
    path = tmp_path / "access.log"
    server = serve(f"--access-log={path}").ready()
    server.ask("GET", "/v2")
    lines(path, 1)
    path.rename(tmp_path / "access.log.1")
    server.ask("GET", "/v2/health/live")
    assert lines(path, 1)[0]["target"] == "/v2/health/live"


def test_the_verbose_log_has_them_from_when_it_is_asked_for(serve, write_model):
    write_model("m")
    server = serve().ready()
    server.ask("GET", "/v2/models/m")
    server.ask("POST", "/v2/logging", {"log_verbose_level": 1})
    server.ask("GET", "/v2/models/m/stats")
    record = server.said(lambda r: r.get("logger") == "tisfast.access" and "stats" in r["message"], "the line")
    assert (record["level"], record["status"], record["model"], record["protocol"]) == ("verbose", 200, "m", "HTTP")
    assert not any('/v2/models/m"' in r["message"] for r in server.log if r.get("logger") == "tisfast.access")


def test_a_file_that_cannot_be_opened_ends_the_start(serve, write_model, tmp_path):
    write_model("m")
    server = serve(f"--access-log={tmp_path}/nowhere/log")
    assert server.ended() == 1
    server.says("cannot open --access-log=")
