"""`tisfast bench --vs` as users type it: both protocols of a server by turns."""

from __future__ import annotations

import json
import re
import signal

import pytest

from tests.system.bench_command import SECONDS_MAX, bench, figure, started
from tests.system.helpers import until


@pytest.fixture
def server(write_model, serve):
    write_model("add_one")
    return serve("--log-verbose=0").ready()


@pytest.fixture
def typed(server):
    grpc = f"grpc://127.0.0.1:{server.says('is ready after')['grpc_port']}"
    return ["-m", "add_one", "-u", f"127.0.0.1:{server.port}", "--vs", grpc, "--shape", "A:4", "-p", "100"]


def test_http_against_grpc(typed, tmp_path):
    code, out, err = bench(
        *typed, "-r", "8", "--concurrency-range", "1:3:2", "--fail-above", "1e9", "--json", tmp_path / "run.json"
    )
    assert (code, err) == (0, "")
    assert "Avg HTTP time: " in out and "Avg gRPC time: " in out
    for level in (1, 3):
        assert f"\nConcurrency {level}\n" in out
    saved = [json.loads((tmp_path / name).read_text()) for name in ("run.json", "run.vs.json")]
    assert [each["target"]["protocol"] for each in saved] == ["http", "grpc"]
    for each in saved:
        assert [len(level["windows"]) for level in each["levels"]] == [8, 8]
        for level in each["levels"]:  # the server counts the same: nothing of the other protocol is in it
            assert level["server"]["success_count"] == pytest.approx(level["completed"], rel=0.25)


def test_ctrl_c_compares_the_pairs_until_then(typed, server):
    process = started(*typed, "-r", "200", "--fail-above", "1e9")
    try:
        until(
            lambda: server.ask("GET", "/v2/models/add_one/stats")[1]["model_stats"][0]["execution_count"] > 3000,
            "asked",
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    if "nothing can be compared" in err:  # on a slow machine that was before the first pair
        assert process.returncode == 99
        return
    assert process.returncode in (0, 99)  # 99: fewer than 8 pairs
    assert "it was interrupted behind " in out
    assert figure(out, "Request count") > 0


@pytest.mark.parametrize("shape", ["A:4", "A:300000"])
def test_what_the_client_itself_can_do_is_measured_of_both_protocols(typed, shape):
    code, out, err = bench(
        *typed, "--shape", shape, "--request-count", "10", "-r", "8", "--fail-above", "1e9", "--calibrate"
    )
    assert (code, err) == (0, "")
    assert re.search(r"The client can do \d+ such requests a second of a core \([\d.]+ usec each\) to http://", out)
    assert re.search(r"The client can do \d+ such requests a second of a core \([\d.]+ usec each\) to grpc://", out)
