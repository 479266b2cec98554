"""`--service-kind openai` against a server whose answers take a known time."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.bench.openai_stub import openai_stub
from tisfast import cli_bench

CHAT = "v1/chat/completions"
ERROR = 0.001  # of the histogram, as docs/bench.md says


@pytest.fixture(scope="module")
def port():
    with openai_stub() as found:
        yield found


class Bench:
    """The command, and what it wrote."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port, self.folder = port, folder

    def __call__(self, *more: object, steps: list[dict[str, Any]] | None = None, endpoint: str = CHAT) -> int:
        if steps is not None:
            (self.folder / "data.json").write_text(json.dumps({"data": steps}))
            more = (*more, "--input-data", self.folder / "data.json")
        typed = ["-m", "tiny", "-u", f"127.0.0.1:{self.port}", "--service-kind", "openai", "--endpoint", endpoint]
        typed += ["--json", self.folder / "x.json", "-f", self.folder / "x.csv", "--report", self.folder / "x.html"]
        typed += ["--openmetrics", self.folder / "x.om"]
        typed += ["--profile-export-file", self.folder / "export.json"]
        return cli_bench.main([*map(str, typed), *map(str, more)])

    @property
    def level(self) -> dict[str, Any]:
        (found,) = json.loads((self.folder / "x.json").read_text())["levels"]
        return found

    @property
    def requests(self) -> list[dict[str, Any]]:
        (found,) = json.loads((self.folder / "export.json").read_text())["experiments"]
        return found["requests"]


@pytest.fixture
def bench(port, tmp_path):
    return Bench(port, tmp_path)


def asked(**stub: Any) -> dict[str, Any]:
    return {"payload": {"messages": [{"role": "user", "content": "Hi"}], "stub": stub}}


def contents(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of an answer, as they were exported."""
    texts = [each["response"].removeprefix("data: ") for each in request["response_outputs"]]
    assert texts[-1] == "[DONE]\n\n"
    return [json.loads(text) for text in texts[:-1]]


def test_tokens_come_when_the_server_sends_them(bench, capsys):
    """No first one is earlier than it was sent, and the distributions are those of the single requests."""
    steps = [asked(first_ms=20 + 5 * number, gap_ms=4, tokens=5) for number in range(4)]
    assert bench("--streaming", "--request-count", 60, "--concurrency-range", 4, steps=steps) == 0
    tokens = bench.level["tokens"]
    first, gaps, means = [], [], []
    for request in bench.requests:
        events = contents(request)
        times = [
            at
            for at, each in zip(request["response_timestamps"], events, strict=False)
            if each["choices"][0]["delta"].get("content")
        ]
        assert len(times) == 5
        first.append(times[0] - request["timestamp"])
        gaps += list(np.diff(times))
        means.append((times[-1] - times[0]) / 4)
        stub = json.loads(request["request_inputs"]["payload"])["stub"]
        assert first[-1] >= stub["first_ms"] * 1e6
    assert len(first) == 60
    for found, exact in (
        (tokens["time_to_first_token"], first),
        (tokens["inter_event_gap"], gaps),
        (tokens["inter_token_latency"], means),
    ):
        assert found["count"] == len(exact)
        for percent in ("50", "75", "90"):
            value = np.quantile(exact, float(percent) / 100, method="inverted_cdf") / 1000
            assert found["percentiles_us"][percent] == pytest.approx(value, rel=2 * ERROR, abs=1)
    assert (tokens["output"], tokens["told_by_usage"], tokens["counted_by_events"]) == (300, 0, 60)
    told = capsys.readouterr().out
    assert "Service Kind: OPENAI" in told
    assert "Output tokens of a request: 5" in told
    assert "Output tokens are counted by events with content in 60 of 60 requests" in told


def test_latency_has_the_whole_stream(bench):
    assert bench("--streaming", "--request-count", 10, steps=[asked(first_ms=10, gap_ms=10, tokens=4)]) == 0
    level = bench.level
    assert level["response_time"]["minimum_us"] >= 40_000
    assert level["tokens"]["time_to_first_token"]["minimum_us"] >= 10_000


def test_usage_tells_the_tokens(bench, capsys):
    step = asked(tokens=4, usage=True)
    assert bench("--streaming", "--request-count", 20, steps=[step]) == 0
    tokens = bench.level["tokens"]
    assert (tokens["output"], tokens["input"], tokens["told_by_usage"], tokens["counted_by_events"]) == (
        160,
        140,
        20,
        0,
    )
    told = capsys.readouterr().out
    assert "Output tokens of a request: 8\n" in told and "Input tokens of a request: 7\n" in told
    assert "counted by events" not in told
    (row,) = csv.DictReader((bench.folder / "x.csv").read_text().splitlines())
    assert (row["Output Tokens"], row["Input Tokens"]) == ("160", "140")
    assert list(row).index("p99 latency") < list(row).index("Output Tokens/Second")
    page = (bench.folder / "x.html").read_text()
    assert "<h2>Tokens</h2>" in page and "Time to first token, ms" in page
    families = {each.name: each.samples for each in text_string_to_metric_families((bench.folder / "x.om").read_text())}
    assert {each.labels["direction"]: each.value for each in families["tisfast_bench_tokens"]} == {
        "output": 160,
        "input": 140,
    }
    assert families["tisfast_bench_first_token_seconds"][-2].value == 20


def test_events_may_be_cut_anywhere(bench):
    assert bench("--streaming", "--request-count", 5, steps=[asked(tokens=3, fault="cut")]) == 0
    assert bench.level["tokens"]["output"] == 15
    assert all(len(contents(each)) == 4 for each in bench.requests)


@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        ("error", "200", "out of memory"),
        ("unfinished", "200", "the stream ended without data: [DONE]"),
        ("drop", "connection", "the server closed the connection before the last chunk of its response"),
        ("status", "429", "too many requests"),
    ],
)
def test_streams_that_fail_are_counted_by_their_text(bench, fault, status, text):
    """The first request, which must be good, comes from the first step."""
    steps = [asked(tokens=2), asked(tokens=2, fault=fault)]
    assert bench("--streaming", "--request-count", 10, steps=steps) == 1
    level = bench.level
    assert level["errors"]["by_text"] == [[status, text, 5]]
    assert (level["completed"], level["tokens"]["output"]) == (5, 10)


def test_answers_that_are_no_streams(bench, capsys):
    assert bench("--request-count", 10, steps=[asked(first_ms=5, usage=True, tokens=3)]) == 0
    tokens = bench.level["tokens"]
    assert (tokens["streams"], tokens["output"], tokens["told_by_usage"]) == (0, 30, 10)
    assert tokens["time_to_first_token"]["count"] == 0
    assert "time to first token" not in capsys.readouterr().out
    (output,) = bench.requests[0]["response_outputs"]
    assert json.loads(output["response"])["seen"]["model"] == "tiny"


def test_an_error_that_comes_with_status_200(bench):
    assert bench("--request-count", 4, steps=[asked(), asked(fault="error")]) == 1
    assert bench.level["errors"]["by_text"] == [["200", "out of memory", 2]]


@pytest.mark.parametrize("endpoint", [CHAT, "/v1/completions", "v1/embeddings"])
def test_without_data_there_is_a_prompt(bench, endpoint):
    assert bench("--request-count", 3, endpoint=endpoint) == 0
    seen = json.loads(bench.requests[0]["response_outputs"][0]["response"])["seen"]
    assert seen["model"] == "tiny"
    assert "lighthouse" in json.dumps(seen)


def test_the_export_says_what_it_is(bench):
    assert bench("--request-count", 2, steps=[asked()]) == 0
    document = json.loads((bench.folder / "export.json").read_text())
    assert (document["service_kind"], document["endpoint"]) == ("openai", CHAT)
    assert set(bench.requests[0]) == {"timestamp", "request_inputs", "response_timestamps", "response_outputs"}


def test_steps_have_their_times(bench):
    steps = [{**asked(tokens=2), "timestamp": 60}, {**asked(tokens=1), "timestamp": 0}]
    assert bench("--fixed-schedule", "--streaming", steps=steps) == 0
    sent = [each["timestamp"] for each in bench.requests]
    assert bench.level["requests"] == 2 and abs(sent[0] - sent[1]) >= 30e6


def test_a_period_counts_events(bench):
    step = asked(tokens=3, gap_ms=1)
    assert bench("--streaming", "--periodic-concurrency-range", "1:3:1", "--request-period", 2, steps=[step]) == 0
    assert bench.level["completed"] == 3


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["--service-kind", "tfserving"], "--service-kind tfserving is not served"),
        (["--endpoint", ""], "needs --endpoint"),
        (["-i", "grpc"], "leave -i grpc out"),
        (["-b", "2"], "one prompt in a request"),
        (["--shape", "A:2"], "--shape says nothing of --service-kind openai"),
        (["-z"], "-z says nothing of --service-kind openai"),
        (["--input-data", "zero"], "--input-data zero makes tensors"),
        (["--shared-memory", "system"], "--shared-memory belongs to tensors"),
        (["--endpoint", "v1/responses"], "its requests have a form that is not known"),
    ],
)
def test_what_does_not_go_with_it_is_refused(bench, capsys, typed, text):
    assert bench(*typed) == 99
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"payload": 5}, "data[0][0].payload is 5"),
        ({"A": [1]}, "data[0][0].A is not known"),
        ({**asked(), "session_id": "1"}, "data[0][0].session_id belongs to a conversation"),
        ({**asked(), "timestamp": "x"}, "data[0][0].timestamp is"),
    ],
)
def test_data_that_is_none_is_refused(bench, capsys, step, text):
    assert bench(steps=[step]) == 99
    assert text in capsys.readouterr().err


def test_the_first_answer_says_what_is_wrong(bench, capsys):
    assert bench(steps=[asked(fault="status")]) == 99
    assert "the first request of model 'tiny' failed: too many requests" in capsys.readouterr().err
    assert bench(endpoint="v1/nothing", steps=[asked()]) == 99
    assert "no /v1/nothing" in capsys.readouterr().err


def test_two_servers_by_turns_have_their_tokens(port, tmp_path):
    """The same one twice: whatever is found of it, tokens of all windows are there."""
    where = f"127.0.0.1:{port}"
    typed = ["-m", "tiny", "-u", where, "--vs", where, "--service-kind", "openai", "--endpoint", CHAT, "--streaming"]
    cli_bench.main([*typed, "-p", "400", "-r", "8", "--json", str(tmp_path / "x.json")])
    for name in ("x.json", "x.vs.json"):
        (level,) = json.loads((tmp_path / name).read_text())["levels"]
        assert level["tokens"]["output"] == 4 * level["completed"] > 0


def test_traffic_is_replayed(bench, tmp_path):
    lines = [{**asked(tokens=3), "timestamp": 1000 + 30 * number} for number in (2, 0, 1)]
    traffic = tmp_path / "traffic.jsonl"
    traffic.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert bench("--streaming", "--replay", traffic) == 0
    assert bench.level["tokens"]["output"] == 9
    sent = sorted(each["timestamp"] for each in bench.requests)
    assert sent[-1] - sent[0] >= 30e6


def test_at_a_rate_the_first_token_counts_from_the_intended_time(bench):
    """One connection answers 20 requests a second, and 40 are due: the last is due after 975 ms, and waits for all."""
    step = asked(first_ms=50, tokens=1)
    load = ["--request-rate-range", 40, "--connections", 1, "--request-count", 40]
    assert bench("--streaming", *load, steps=[step]) == 0
    assert bench.level["tokens"]["time_to_first_token"]["maximum_us"] >= 1_000_000
