"""`tisfast bench` as users type it: against tisfast, and against a server that waits, stalls, drops and dies."""

from __future__ import annotations

import csv
import json
import re
import signal
import threading
import time

import pytest

from tests.bench.lateness import Lateness
from tests.bench.stub_server import StubServer
from tests.system.bench_command import DECOUPLED, SECONDS_MAX, STREAM, bench, figure, started
from tests.system.helpers import until

FAST = ["-p", "300", "-s", "1000000", "-r", "100"]  # three short windows that agree, of many: some may be empty


@pytest.fixture
def server(write_model, serve):
    write_model("add_one")
    write_model("talker", STREAM, DECOUPLED)
    return serve("--log-verbose=0").ready()


@pytest.fixture
def grpc_url(server):
    return f"127.0.0.1:{server.says('is ready after')['grpc_port']}"


@pytest.mark.parametrize(("typed", "levels"), [("1:3:2", "13"), ("1,2,5", "125")])
def test_over_http(server, tmp_path, typed, levels):
    table = tmp_path / "figures.csv"
    url = f"127.0.0.1:{server.port}"
    typed = ["-m", "add_one", "-u", url, "--shape", "A:4", "--concurrency-range", typed]
    code, out, err = bench(*typed, "-f", table, *FAST)
    assert (code, err) == (0, "")
    assert out.startswith("*** Measurement Settings ***\n  Batch size: 1\n  Service Kind: TRITON\n")
    assert all(f"Request concurrency: {level}\n  Client: \n" in out for level in levels)
    assert "  Server: \n    Inference count: " in out
    seen = rf"    Processes: [0-9.]+ cores busy, [1-9][0-9.]+ MB of memory \(\d+ of .+, pid {server.process.pid}\)\n"
    assert re.search(seen, out)
    assert out.index("Inferences/Second vs. Client Average Batch Latency") < out.index("Concurrency: 1, throughput: ")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert sorted(row["Concurrency"] for row in rows) == list(levels)
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
    code, out, err = bench("compare", one, other, "--fail-above", "1e9")  # the machine may be busy meanwhile
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
    "load", [["--request-count", "20"], ["--request-rate-range", "50", *FAST], ["--periodic-concurrency-range", "2:4"]]
)
def test_each_response_of_a_decoupled_model_is_in_the_export(grpc_url, tmp_path, load):
    target = tmp_path / "requests.json"
    code, _, _ = bench(
        "-m", "talker", "-i", "grpc", "-u", grpc_url, "--streaming", *load, "--profile-export-file", target
    )
    assert code == 0
    (experiment,) = json.loads(target.read_text())["experiments"]
    assert experiment["experiment"]["value"] == (50 if "50" in load else 1)
    assert experiment["requests"]
    for request in experiment["requests"]:
        times = request["response_timestamps"]
        assert len(times) == 3 + 1  # the last one is empty
        assert request["timestamp"] < times[0] and times == sorted(times)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["-m", "nope"], "error: Request for unknown model: 'nope' is not found\n"),
        (["-m", "add_one"], "contains dynamic shape [-1], provide shapes to send along with the request: --shape A:4"),
        (["-m", "add_one", "--shape", "A:4", "-b", "2"], "as the model does not support batching"),
        (["-m", "add_one", "--shape", "C:4"], "--shape names the input 'C', which model 'add_one' does not have"),
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
    assert "Not stable: the server cannot be reached for 3 s: cannot connect: Connection refused" in out, out
    assert figure(out, "Request count") > 0
    assert "Failed requests: " in out


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


WAITS = 4
"""Of one request, each for as long as the machine lets a thread wait: the server's two, and the client's two."""


def within(found: float, truth: float, late: float = 0.0) -> bool:
    """By 2 %, and by what a busy machine adds; never below the truth: the server waits at least so long."""
    return truth <= found <= 1.02 * truth + WAITS * 1e6 * late


def test_percentiles_are_within_2_percent_of_the_servers_truth():
    """Of ten answers nine take 0.2 s and one 0.5 s; one try in three on a quiet machine is enough."""
    truths = {"p50": 200_000, "p80": 200_000, "p95": 500_000, "p99": 500_000}
    for _ in range(3):
        with (
            StubServer(lambda number: time.sleep(0.5 if number % 10 == 0 else 0.2) or "") as stub,
            Lateness() as late,
        ):
            code, out, _ = bench(
                "-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--request-count", "400", "--concurrency-range", "32",
                "--percentile", "80",
            )  # fmt: skip
        assert code == 0
        if all(within(figure(out, f"{name} latency"), truth) for name, truth in truths.items()):
            return
    # The machine is never quiet.
    assert all(within(figure(out, f"{name} latency"), truth, late.seconds) for name, truth in truths.items()), out


def test_a_stall_is_in_the_percentile_that_it_must_be_in():
    """For 0.8 s nothing is answered, at 200 requests a second; then all that waited go one after another.

    Of N requests the slowest hundredth were due first in the stall: p99 is 0.8 s less N/100 gaps of 5 ms.
    """
    stalled = threading.Event()

    def answering(number: int) -> str:
        if number == 200:
            stalled.wait(0.8)
        return ""

    for _ in range(3):
        with StubServer(answering) as stub, Lateness() as late:
            code, out, _ = bench(
                "-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--request-rate-range", "200", "-p", "1000", "-s",
                "1000000", "--connections", "1",
            )  # fmt: skip
        assert code == 0
        truth = 800_000 - figure(out, "Request count") / 100 * 5_000
        found = figure(out, "p99 latency")
        if abs(found - truth) <= 0.02 * truth:
            assert figure(out, "p99 service time") < truth / 4  # one request alone was on the way
            assert figure(out, "p50 latency") < truth / 4
            return
    # The machine is never quiet: some requests had been sent before, one after another.
    assert 0.98 * truth <= found <= 1.02 * truth + 10 * WAITS * 1e6 * late.seconds, (truth, late.seconds, out)


def test_counts_and_times_of_the_server_are_those_of_the_measured_requests():
    parts = {"success": 7_000_000, "queue": 2_000_000, "compute_infer": 4_000_000}
    with StubServer(parts_ns=parts) as stub:
        code, out, _ = bench("-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--request-count", "100")
    assert code == 0
    assert figure(out, "Successful request count") == 100
    assert "Avg request latency: 7000 usec (overhead 1000 usec + queue 2000 usec + compute input 0 usec + " in out
    assert "compute infer 4000 usec + compute output 0 usec)" in out


def test_statistics_that_take_long_are_in_no_figure():
    """Each look takes 2 s; 20 requests of 10 ms take 0.2 s, and on a busy machine some times that."""
    with StubServer(lambda _: time.sleep(0.01) or "", parts_ns={"success": 10_000_000}) as stub:
        stub.looks = lambda: time.sleep(2)
        code, out, _ = bench("-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--request-count", "20")
    assert code == 0
    assert figure(out, "Throughput") > 20 / (20 * 0.01 + 2)


def test_a_name_with_an_address_that_nobody_listens_at():
    """localhost may be ::1 first, where the server is not."""
    with StubServer() as stub:
        code, out, err = bench("-m", "stub", "-u", f"localhost:{stub.port}", "--request-count", "20")
    assert (code, err) == (0, "")
    assert figure(out, "Request count") == 20


def test_it_stops_when_the_wanted_percentile_is_known(tmp_path):
    with StubServer(lambda _: time.sleep(0.005) or "") as stub:
        code, out, _ = bench(
            "-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--stop", "confidence", "--percentile", "50", "-s", "20",
            "-p", "500", "-r", "40",
        )  # fmt: skip
        assert code == 0
        assert "  Stopping when the p50 latency is known within 20 %\n" in out
        assert re.search(r"Stable: the p50 latency is known within [\d.]+ %, with 95 % confidence\n", out)
        code, out, _ = bench(
            "-m", "stub", "-u", f"127.0.0.1:{stub.port}", "--stop", "confidence", "--percentile", "99", "-s", "0.01",
            "-p", "500", "-r", "2",
        )  # fmt: skip
    assert code == 2
    found = re.search(r"Not stable: (.*)\n", out)
    assert found and "p99" in found[1], out
    assert figure(out, "Request count") > 0


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
