"""`tisfast bench --trace-level` and its like: the server traces meanwhile, and behind it what it did before."""

from __future__ import annotations

import json
import signal

import pytest

from tests.system.bench_command import SECONDS_MAX, bench, started
from tests.system.helpers import until

SETTINGS = "/v2/trace/setting"


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace.json"


@pytest.fixture
def server(write_model, serve, trace):
    write_model("add_one")
    return serve("--log-verbose=0", f"--trace-config=triton,file={trace}", "--trace-config=rate=7").ready()


def settings(server):
    status, found = server.ask("GET", SETTINGS)
    assert status == 200
    return found


def typed(server, *more):
    return ["-m", "add_one", "-u", f"127.0.0.1:{server.port}", "--shape", "A:4", *more]


TRACES = ["--trace-level", "TIMESTAMPS", "--trace-level", "TENSORS", "--trace-rate", "2", "--trace-count", "3"]


def models_traced(trace):
    """How many traces there are.  The file is whole after each write, and empty before the first."""
    text = trace.read_text() if trace.exists() else ""
    return sum("model_name" in each for each in json.loads(text)) if text else 0


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_it_traces_meanwhile_and_not_behind(server, trace, protocol):
    before = settings(server)
    assert before["trace_level"] == ["OFF"]
    port = server.says("is ready after")["grpc_port"] if protocol == "grpc" else server.port
    more = ["-i", protocol, "-u", f"127.0.0.1:{port}", "--request-count", 20, "--log-frequency", 0]
    code, _, err = bench(*typed(server, *more, *TRACES))
    assert (code, err) == (0, "")
    assert settings(server) == before
    until(lambda: models_traced(trace) == 3, "three traces are written")
    assert "TENSOR_QUEUE_INPUT" in trace.read_text()


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_puts_the_settings_back(server, trace, times):
    before = settings(server)
    process = started(*typed(server, "-p", "60000", *TRACES))
    try:
        until(lambda: settings(server) != before, "the settings are changed")
        until(lambda: models_traced(trace), "requests are traced")
        process.send_signal(signal.SIGINT)
        if times == 2:
            line = process.stdout.readline()
            while line and "Interrupt signal" not in line:
                line = process.stdout.readline()
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert settings(server) == before


def test_an_error_puts_the_settings_back(server):
    before = settings(server)
    code, _, err = bench(
        *typed(
            server, *TRACES, "--concurrency-range", "2", "--report", "/no/such/folder/x.html", "--request-count", "4"
        )
    )
    assert code == 99 and "could not be written" in err
    assert settings(server) == before


def test_what_the_server_refuses_ends_it(server):
    before = settings(server)
    code, out, err = bench(*typed(server, "--trace-file", "/tmp/other.json"))
    assert (code, out) == (99, "")
    assert "--trace-file /tmp/other.json: the server refuses it: " in err
    assert settings(server) == before
