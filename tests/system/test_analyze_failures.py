"""`tisfast analyze` where something fails, hangs or is none of its own: each ends with a sentence and an exit code."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.system.analyze_models import ALONE, HANGING, KILLER, MODE, PLAIN, SECONDS_MAX, SHORT, analyze, started
from tests.system.helpers import until
from tisfast.analyze.ending import Ending, Interrupted
from tisfast.analyze.servers import OwnServer
from tisfast.native.nvml import open_nvml

KILLS_AT_TWO = KILLER.replace('self.mode == "kill"', 'self.mode == "2"')
STOPS = ALONE.replace(
    "for _ in requests:", "while self.mode == 'hang':\n            time.sleep(1)\n        for _ in requests:"
)
STOPS = (
    STOPS.replace(
        "    def initialize(self, args):", "    def initialize(self, args):\n        self.mode = mode_of(args)"
    )
    + MODE
)
"""With a parameter its executions never end."""
REFUSES = ALONE.replace("for _ in requests:", "raise ValueError('it cannot execute')\n        for _ in requests:")
LOAD = ("--concurrency", "1")


@pytest.fixture
def own(tmp_path, write_model):
    """The flags of a search with a server of its own."""

    def made(code: str = ALONE, *flags: object):
        write_model("made", code, PLAIN)
        return ("-m", "made", "--model-repository", tmp_path / "models", "-o", tmp_path / "out", *SHORT, *LOAD, *flags)

    return made


def rows(folder):
    return list(csv.DictReader((folder / "results.csv").read_text().splitlines()))


def test_a_variant_that_kills_the_server_is_stepped_over(tmp_path, own):
    """Of a climb from 1, 2 fails, and 3 is tried, on a server that was started again."""
    code, text, err = analyze(*own(KILLS_AT_TWO, "--set", "parameters.MODE=1,2,3"))
    assert (code, err) == (0, ""), text
    assert [(row["Model Config"], bool(row["Failure"])) for row in rows(tmp_path / "out")][-1] == (
        "parameters.MODE 2",
        True,
    )
    assert "parameters.MODE 3" in [row["Model Config"] for row in rows(tmp_path / "out")]
    assert "parameters.MODE 2, concurrency 1: the server ended with exit status -9" in text


def test_a_server_that_somebody_kills_is_started_again(tmp_path, own):
    process = started(*own(ALONE, "--instances", "1:5", "--search", "brute"))
    try:
        next(line for line in process.stdout if line.startswith("  "))
        pids = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
        os.kill(int(pids.split()[0]), signal.SIGKILL)
        _, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    assert len(rows(tmp_path / "out")) == 5
    assert sum(not row["Failure"] for row in rows(tmp_path / "out")) >= 4


def test_a_first_request_that_hangs_is_bounded(tmp_path, own):
    flags = ("--set", "parameters.MODE=hang,calm", "--search", "brute", "--first-request", "1")
    code, text, err = analyze(*own(STOPS, *flags))
    assert (code, err) == (0, ""), text
    assert "had no answer within 1 s; --first-request SECONDS waits longer" in text
    assert 'parameters.MODE "calm"' in [row["Model Config"] for row in rows(tmp_path / "out")]


def test_a_first_request_that_was_late_is_tried_again_with_more_time(own):
    flags = own(STOPS, "--set", "parameters.MODE=hang,calm", "--search", "brute")
    analyze(*flags, "--first-request", "1")
    code, text, err = analyze(*flags, "--first-request", "2")
    assert (code, err) == (0, ""), text
    assert "2 measurements are taken from" in text
    assert "had no answer within 2 s" in text
    assert "had no answer within 1 s" not in text
    assert "had no answer within 2 s" in analyze(*flags)[1]  # and is not measured again without the flag


def test_what_is_abandoned_ends_with_its_server(tmp_path, write_model):
    """Nothing waits for a load that hangs when a signal has come."""
    write_model("made", HANGING, PLAIN)
    server = OwnServer(tmp_path / "models", ["made"], first=["made"], grpc=False, flags=[], log=tmp_path / "server.log")
    ending = Ending()

    def hangs():
        thread = threading.Thread(target=interrupt)
        thread.start()
        server.load("made", variant)

    def interrupt():
        until((tmp_path / "hangs").exists, "the load hangs")
        os.kill(os.getpid(), signal.SIGTERM)

    variant = {
        "backend": "python",
        "parameters": {"MODE": {"string_value": "hang"}},
        "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [4]}],
    }
    server.start()
    try:
        with ending.handled(), ending.section("more ends it", bears=1), pytest.raises(Interrupted):
            ending.wait_for(hangs, server.abandon)
        assert "waited for" not in [thread.name for thread in threading.enumerate()]
    finally:
        server.close()


class Answers(BaseHTTPRequestHandler):
    """As a server of files: a page for whatever is asked."""

    def do_GET(self):
        page = b"<!DOCTYPE html><html><body>" + 50 * b"<p>not found</p>\n" + b"</body></html>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def other_program():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_is_no_server_is_told_in_one_sentence(tmp_path, write_model, serve):
    write_model("made", ALONE, PLAIN)
    server = serve("--model-control-mode=explicit", "--load-model=made", "--allow-metrics=true").ready()
    ports = server.said(lambda record: record.get("event") == "ready", "ready")
    with other_program() as other:
        for port, flags in (
            (ports["metrics_port"], ()),
            (other, ()),
            (ports["grpc_port"], ()),
            (ports["metrics_port"], ("-i", "grpc")),
            (server.port, ("-i", "grpc")),
        ):
            code, _, err = analyze("-m", "made", "-u", f"127.0.0.1:{port}", "-o", tmp_path / "out", *flags)
            assert code == 99, err
            assert f"127.0.0.1:{port} is no server of KServe's protocol 2" in err
            assert len(err.splitlines()) == 1, err
            assert len(err) < 400, err
            assert "gRPC" in err or "HTTP port" in err
    assert not (tmp_path / "out").exists()


def test_a_running_server_that_dies_is_told_once(tmp_path, write_model, serve):
    write_model("made", ALONE, PLAIN)
    server = serve("--model-control-mode=explicit", "--load-model=made").ready()
    out = tmp_path / "out"
    process = started(
        *("-m", "made", "-u", f"127.0.0.1:{server.port}", "-o", out, *SHORT, *LOAD, "--instances", "1:9"),
        *("--search", "brute"),
    )
    try:
        next(line for line in process.stdout if line.startswith("  1 of 9: "))
        server.process.kill()
        text, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 2, err
    assert err.count("no longer answers") == 1
    assert "no longer answers" not in text.partition("It ended early, as the error says.")[2].partition("failed:")[0]
    assert "NAME" not in text + err
    assert "no longer answers" in (out / "report.html").read_text()


@pytest.mark.parametrize("name", ["results.csv", "report.html", "checkpoint.json"])
def test_what_a_person_made_is_refused_before_the_search(tmp_path, own, name):
    file = tmp_path / "out" / name
    file.parent.mkdir()
    file.write_text("my own")
    code, text, err = analyze(*own())
    assert (code, text) == (99, "")
    assert f"{file} is there already, and tisfast analyze has not written it" in err
    assert [each.name for each in file.parent.iterdir()] == [name]
    assert file.read_text() == "my own"


def test_a_format_that_does_not_answer_is_a_row(tmp_path, write_model):
    write_model("good", ALONE, PLAIN)
    write_model("bad", REFUSES, PLAIN)
    flags = ("--model-repository", tmp_path / "models", "-o", tmp_path / "out", *SHORT, *LOAD, "--instances", "1,2")
    code, text, err = analyze("--formats", "good,bad", *flags)
    assert (code, err) == (0, ""), text
    assert "failed: format bad, concurrency 1: it failed: the first request of model 'bad' failed: " in text
    assert [row["Model"] for row in rows(tmp_path / "out")][-1] == "bad"
    code, _, err = analyze("--formats", "bad,good", *flags, "--checkpoint", "new")
    assert code == 99
    assert "it cannot execute" in err


def test_configurations_that_break_a_bound_say_so(tmp_path, own):
    code, text, _ = analyze(*own(ALONE, "--instances", "1,2", "--latency-budget", "1"))
    assert code == 1
    assert "No variant keeps all bounds; of the one that is nearest latency_p99 is " in text
    head = (tmp_path / "out" / "best" / "1" / "config.pbtxt").read_text().splitlines()[:2]
    assert ", p99 " in head[0]
    assert head[1].startswith("# It does not keep all bounds: latency_p99 is ")


@pytest.mark.skipif(open_nvml() is not None, reason="this machine may have a GPU")
def test_memory_of_gpus_is_refused_where_there_is_none(tmp_path, own):
    flags = own()
    for wanted in (("--objective", "gpu_memory"), ("--max-gpu-memory", "10")):
        code, _, err = analyze(*flags, *wanted)
        assert code == 99
        assert "gpu_memory is not known on this machine, as NVML tells of no GPU" in err
        assert not (tmp_path / "out").exists()
