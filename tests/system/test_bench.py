"""`tisfast bench` as users type it: against tisfast, and against a server that waits, stalls, drops and dies."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.bench.stub_server import StubServer
from tests.system.helpers import ROOT, until

SECONDS_MAX = 90
STREAM = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A")
            sender = request.get_response_sender()
            for _ in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", a.as_numpy())]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
"""
DECOUPLED = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "A" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
FAST = ["-p", "300", "-s", "1000000", "-r", "100"]  # three short windows that agree, of many: some may be empty


def started(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tisfast", "bench", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def bench(*arguments: object) -> tuple[int, str, str]:
    """Its exit code, and what it printed; it always ends."""
    process = started(*arguments)
    try:
        out, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    return process.returncode, out, err


def figure(text: str, name: str) -> float:
    found = re.search(rf"{name}: ([\d.e+]+)", text)
    assert found, text
    return float(found[1])


@pytest.fixture
def server(write_model, serve):
    write_model("add_one")
    write_model("talker", STREAM, DECOUPLED)
    return serve("--log-verbose=0").ready()


@pytest.fixture
def grpc_url(server):
    return f"127.0.0.1:{server.says('is ready after')['grpc_port']}"


def test_over_http(server, tmp_path):
    table = tmp_path / "figures.csv"
    url = f"127.0.0.1:{server.port}"
    typed = ["-m", "add_one", "-u", url, "--shape", "A:4", "--concurrency-range", "1:3:2"]
    code, out, err = bench(*typed, "-f", table, *FAST)
    assert (code, err) == (0, "")
    assert out.startswith("*** Measurement Settings ***\n  Batch size: 1\n  Service Kind: TRITON\n")
    for level in ("Request concurrency: 1\n  Client: \n", "Request concurrency: 3\n  Client: \n"):
        assert level in out
    assert "  Server: \n    Inference count: " in out
    assert out.index("Inferences/Second vs. Client Average Batch Latency") < out.index("Concurrency: 1, throughput: ")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert sorted(row["Concurrency"] for row in rows) == ["1", "3"]
    assert all(float(row["Inferences/Second"]) > 0 and int(row["p50 latency"]) > 0 for row in rows)


@pytest.mark.parametrize("more", [[], ["--streaming"]])
def test_over_grpc(grpc_url, more):
    code, out, err = bench(
        "-m", "add_one", "-i", "grpc", "-u", grpc_url, "--shape", "A:4", "--concurrency-range", "8", *FAST, *more
    )
    assert (code, err) == (0, "")
    assert figure(out, "Request count") > 0
    assert "Avg gRPC time: " in out


def test_runs_are_saved_drawn_and_compared(server, tmp_path):
    url, one, other, page = f"127.0.0.1:{server.port}", tmp_path / "1.json", tmp_path / "2.json", tmp_path / "run.html"
    typed = ["-m", "add_one", "-u", url, "--shape", "A:4", "--concurrency-range", "1:3:2", *FAST]
    assert bench(*typed, "--json", one, "--report", page)[0] == 0
    assert bench(*typed, "--json", other)[0] == 0
    code, out, err = bench("compare", one, other, "--fail-above", "1000")
    assert (code, err) == (0, "")
    assert "Concurrency 1\n" in out and "Concurrency 3\n" in out
    assert re.search(r"infer/sec +[0-9.]+ +[0-9.]+ +[0-9.]+ ", out)
    saved = json.loads(one.read_text())
    assert [each["value"] for each in saved["levels"]] == [1, 3]
    drawn = page.read_text()
    assert drawn.startswith("<!DOCTYPE html>") and drawn.count("<svg") >= 2 and "add_one" in drawn
    assert not re.search(r"""(src|href)=["']https?:""", drawn)  # it loads nothing
    code, out, err = bench("compare", one, tmp_path / "none.json")
    assert (code, out) == (99, "")
    assert "none.json cannot be read (No such file or directory)" in err


def test_client_and_server_count_the_same_requests(server):
    url = f"127.0.0.1:{server.port}"
    code, out, _ = bench(
        "-m", "add_one", "-u", url, "--shape", "A:4", "--request-count", "200", "--warmup-request-count", "20",
        "--concurrency-range", "4",
    )  # fmt: skip
    assert code == 0
    for name in ("Request count", "Inference count", "Successful request count"):
        assert figure(out, name) == 200


def test_a_decoupled_model_answers_three_times(grpc_url):
    code, out, _ = bench("-m", "talker", "-i", "grpc", "-u", grpc_url, "--streaming", "--request-count", "50")
    assert code == 0
    assert figure(out, "Request count") == 50
    assert figure(out, "Response Throughput") == pytest.approx(3 * figure(out, "Throughput"), rel=0.01)
    code, _, err = bench("-m", "talker", "-i", "grpc", "-u", grpc_url)
    assert code == 99
    assert err == "error: model 'talker' is decoupled: it answers in a stream, so add --streaming and -i grpc\n"


def test_large_tensors_arrive_whole(server, grpc_url):
    grpc = ["-i", "grpc", "-u", grpc_url]
    for more in (["-u", f"127.0.0.1:{server.port}"], grpc, [*grpc, "--streaming"]):
        code, out, err = bench(
            "-m", "add_one", *more, "--shape", "A:500000", "--request-count", "20", "--concurrency-range", "3"
        )
        assert (code, err) == (0, "")
        assert figure(out, "Successful request count") == 20


def test_input_data_of_a_file_is_sent_and_expected_outputs_are_checked(server, tmp_path):
    data = tmp_path / "data.json"
    for right, code in ((3, 0), (4, 1)):
        outputs = [{"B": [2, 2]}, {"B": [right, 3]}]
        data.write_text(json.dumps({"data": [{"A": [1, 1]}, {"A": [2, 2]}], "validation_data": outputs}))
        given, out, err = bench(
            "-m", "add_one", "-u", f"127.0.0.1:{server.port}", "--shape", "A:2", "--input-data", data,
            "--request-count", "10",
        )  # fmt: skip
        assert (given, err) == (code, "")
        if code:
            assert figure(out, "Failed requests") == 5
            assert "Output doesn't match expected output: 'B' at [0] is 3.0, and 4.0 is expected" in out


def test_each_request_is_in_the_export(server, tmp_path):
    target = tmp_path / "requests.json"
    code, _, _ = bench(
        "-m", "add_one", "-u", f"127.0.0.1:{server.port}", "--shape", "A:4", "--request-count", "30",
        "--profile-export-file", target,
    )  # fmt: skip
    assert code == 0
    experiment = json.loads(target.read_text())["experiments"][0]
    assert experiment["experiment"] == {"mode": "concurrency", "value": 1}
    requests = experiment["requests"]
    assert len(requests) == 30
    assert all(each["timestamp"] < each["response_timestamps"][0] for each in requests)
    assert abs(requests[0]["timestamp"] / 1e9 - time.time()) < 3600


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["-m", "nope"], "error: Request for unknown model: 'nope' is not found\n"),
        (["-m", "add_one"], "contains dynamic shape [-1], provide shapes to send along with the request: --shape A:4"),
        (["-m", "add_one", "--shape", "A:4", "-b", "2"], "as the model does not support batching"),
        (["-m", "add_one", "--shape", "C:4"], "--shape names the input 'C', which model 'add_one' does not have"),
        (["-m", "add_one", "--shared-memory", "system"], "Error: --shared-memory is not served by tisfast bench: "),
        ([], "Error: Failed to parse -m (model name). The value must be specified."),
    ],
)
def test_wrong_input_ends_at_once_with_a_sentence(server, typed, text):
    began = time.monotonic()
    code, out, err = bench("-u", f"127.0.0.1:{server.port}", *typed)
    assert (code, out) == (99, "")
    assert text in err
    assert time.monotonic() - began < SECONDS_MAX / 2


def test_a_request_that_the_server_refuses_is_told_before_all(write_model, serve):
    code_of_model = "class TritonPythonModel:\n    def execute(self, requests):\n        raise ValueError('no luck')\n"
    write_model("broken", code_of_model)
    server = serve().ready()
    code, out, err = bench("-m", "broken", "-u", f"127.0.0.1:{server.port}", "--shape", "A:4")
    assert (code, out) == (99, "")
    assert err.startswith("error: the first request of model 'broken' failed: ")
    assert "no luck" in err


def test_no_server_is_told():
    with StubServer() as stub:
        port = stub.port
    code, _, err = bench("-m", "stub", "-u", f"127.0.0.1:{port}")
    assert code == 99
    assert err == f"error: cannot connect to http://127.0.0.1:{port}: Connection refused; is a server running there?\n"


def test_a_server_that_dies_leaves_what_was_measured_until_then(server):
    url = f"127.0.0.1:{server.port}"
    process = started("-m", "add_one", "-u", url, "--shape", "A:4", "-p", "500", "-s", "0", "-r", "1000")
    try:
        until(lambda: int(counted(server)) > 100, "it has been asked")
        server.process.kill()
        out, _ = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "Not stable: the server cannot be reached for 3 s: cannot connect: Connection refused" in out
    assert figure(out, "Request count") > 0
    assert figure(out, "Failed requests") >= 1


def counted(server) -> int:
    status, found = server.ask("GET", "/v2/models/add_one/stats")
    assert status == 200
    return found["model_stats"][0]["inference_stats"]["success"]["count"]


def test_ctrl_c_gives_what_was_measured_until_then(server):
    process = started("-m", "add_one", "-u", f"127.0.0.1:{server.port}", "--shape", "A:4", "-p", "3600000")
    try:
        until(lambda: int(counted(server)) > 100, "it has been asked")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Interrupt signal (2) received.\nWaiting for in-flight inferences to complete.\n" in out
    assert "Not stable: it was interrupted; these are the figures until then" in out
    assert figure(out, "Request count") > 50


# ---- a server of known latency


def test_percentiles_are_those_of_the_server(tmp_path):
    """Of ten answers nine take 40 ms and one 120 ms.  What a busy machine adds is in each request's own times, too."""
    with StubServer(lambda number: time.sleep(0.12 if number % 10 == 0 else 0.04) or "") as stub:
        code, out, _ = bench(
            "-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--request-count", "400", "--concurrency-range", "4",
            "--profile-export-file", tmp_path / "requests.json",
        )  # fmt: skip
    assert code == 0
    requests = json.loads((tmp_path / "requests.json").read_text())["experiments"][0]["requests"]
    latencies = [(each["response_timestamps"][0] - each["timestamp"]) / 1000 for each in requests]
    assert len(latencies) == 400
    for percent, truth in ((50, 40_000), (95, 120_000)):
        assert truth <= figure(out, f"p{percent} latency") == pytest.approx(np.percentile(latencies, percent), rel=0.05)
    # No more than four were under way, however long that took: latency is not counted beyond the answer.
    assert figure(out, "Throughput") * figure(out, "Avg latency") / 1e6 <= 4 * 1.02


def test_a_stall_is_seen_by_all_that_were_due_meanwhile():
    """For 0.8 s nothing is answered; at 200 requests a second 160 were due then, and wait 0.4 s in the mean."""
    stalled, lock = threading.Event(), threading.Lock()
    ends: list[float] = []

    def answering(number: int) -> str:
        if number < 200:
            return ""
        with lock:
            ends.append(time.monotonic() + 0.8) if not ends else None
        stalled.wait(max(ends[0] - time.monotonic(), 0))
        return ""

    with StubServer(answering) as stub:
        code, out, _ = bench(
            "-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--request-rate-range", "200", "-p", "1000", "-s", "1000000"
        )
    assert code == 0
    assert figure(out, "p99 from the intended time of sending") > 600_000


def test_errors_are_counted_and_named_and_the_rest_is_measured():
    with StubServer(lambda number: "drop" if number % 50 == 7 else "no luck" if number % 50 == 9 else "") as stub:
        code, out, _ = bench("-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--request-count", "100")
    assert code == 1
    assert figure(out, "Request count") == 96
    assert figure(out, "Failed requests") == 4
    assert "  2 x 500: no luck\n" in out
    assert "  2 x connection: " in out
    with StubServer(lambda number: "no luck" if number == 9 else "") as stub:
        code, _, _ = bench("-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--request-count", "100", "--max-errors", "1")
    assert code == 0


def test_a_server_that_stops_answering_does_not_hold_it_for_ever():
    hung = threading.Event()
    with StubServer(lambda number: "" if number < 50 else hung.wait(SECONDS_MAX) or "") as stub:
        code, out, _ = bench("-m", "stub", "-u", f"127.0.0.1:{stub.port}", "-p", "300", "-r", "4", "-s", "0")
        hung.set()
    assert code == 1
    assert "1 x none: no answer within 10 s behind the end of the level" in out


def test_a_report_that_cannot_be_written_is_told_behind_the_figures(tmp_path):
    with StubServer() as stub:
        url = f"127.0.0.1:{stub.port}"
        code, out, err = bench("-m", "stub", "-u", url, "--request-count", "20", "-f", tmp_path / "no/x.csv")
    assert code == 99
    assert figure(out, "Request count") == 20
    assert "x.csv could not be written (No such file or directory)" in err


def test_help_names_every_flag_that_is_served():
    code, out, _ = bench("--help")
    assert code == 0
    assert all(flag in out for flag in ("--concurrency-range", "--request-rate-range", "--profile-export-file"))
