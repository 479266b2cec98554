"""Two servers by turns: who is asked when, what is compared, and what the exit code says."""

from __future__ import annotations

import json
import re
import threading

from tests.bench.stub_server import METADATA, StubServer
from tisfast import cli_bench

PAIRS = ["-r", "8", "--request-count", "5"]
"""Windows of five requests."""


def versus(first: StubServer, second: StubServer, *more: object) -> int:
    return cli_bench.main(
        ["-m", "stub", "-u", f"127.0.0.1:{first.port}", "--vs", f"127.0.0.1:{second.port}", *PAIRS, *map(str, more)]
    )


def takes(seconds: float):
    def answering(_: int) -> str:
        threading.Event().wait(seconds)
        return ""

    return answering


def test_windows_alternate_in_pairs_that_are_turned_each_time():
    asked = []
    first = StubServer(lambda _: asked.append("A") or "")
    second = StubServer(lambda _: asked.append("B") or "")
    with first, second:
        assert versus(first, second, "--fail-above", "1e9") == 0
    probes, windows = asked[:2], asked[2:]
    assert probes == ["A", "B"]
    assert [windows[at : at + 5] for at in range(0, len(windows), 5)] == [[each] * 5 for each in "BAABBAABBAABBAABBA"]


def test_a_slower_server_is_a_regression_and_the_files_say_the_same(tmp_path, capsys):
    target = tmp_path / "run.json"
    with StubServer(takes(0.001)) as first, StubServer(takes(0.02)) as second:
        assert versus(first, second, "--json", target, "-f", tmp_path / "run.csv", "--report", tmp_path / "r.html") == 4
    shown = capsys.readouterr().out
    assert f"http://127.0.0.1:{first.port}\nRequest concurrency: 1\n" in shown
    assert f"http://127.0.0.1:{second.port}\nRequest concurrency: 1\n" in shown
    assert "REGRESSION: mean usec at concurrency 1 is worse by " in shown
    assert (
        "\nratio: the median of second by first in each pair; it may differ from the ratio of the two medians" in shown
    )
    assert "Alternating with a second server: 8 windows of each" in shown
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "r.html", "r.vs.html", "run.csv", "run.json", "run.vs.csv", "run.vs.json",
    ]  # fmt: skip
    assert cli_bench.main(["compare", "--paired", str(target), str(tmp_path / "run.vs.json")]) == 4
    again = capsys.readouterr().out
    assert shown[shown.index("\nConcurrency 1") :] == again[again.index("\nConcurrency 1") :]
    assert "One run each" not in again


def test_json_on_standard_output_is_alone_there(capsys):
    """A line for each server; the text goes to standard error."""
    with StubServer() as first, StubServer() as second:
        assert versus(first, second, "--fail-above", "1e9", "--json", "/dev/stdout") == 0
        out, err = capsys.readouterr()
        urls = [json.loads(line)["target"]["url"] for line in out.splitlines()]
        assert urls == [f"127.0.0.1:{each.port}" for each in (first, second)]
    assert "Alternating with a second server" in err and "\nConcurrency 1\n" in err


def test_the_other_way_round_it_is_better():
    with StubServer(takes(0.02)) as first, StubServer(takes(0.001)) as second:
        assert versus(first, second) == 0


def test_the_time_of_one_is_not_in_the_throughput_of_the_other(tmp_path):
    with StubServer(takes(0.05)) as first, StubServer(takes(0.001)) as second:
        assert versus(first, second, "--json", tmp_path / "run.json") == 0
    (level,) = json.loads((tmp_path / "run.vs.json").read_text())["levels"]
    assert len(level["windows"]) == 8
    assert level["completed"] == sum(each["responses"] for each in level["windows"]) == 40
    assert level["seconds"] < 8 * 5 * 0.05


def test_a_server_that_fails_midway_ends_it_with_a_sentence(capsys):
    with StubServer() as first, StubServer(lambda number: "" if number <= 11 else "no luck") as second:
        assert versus(first, second) == 99
    err = capsys.readouterr().err
    assert (
        f"error: no further level was measured: http://127.0.0.1:{second.port} answered no request of a window: the "
        "first one failed with: no luck" in err
    )


def test_the_pairs_before_a_failure_are_compared_and_written(tmp_path, capsys):
    """The probe, the warm-up and nine pairs of five requests go well."""
    with StubServer() as first, StubServer(lambda number: "" if number <= 51 else "no luck") as second:
        assert versus(first, second, "-r", "20", "--json", tmp_path / "run.json") == 99
    out, err = capsys.readouterr()
    assert "error: no further level was measured: http" in err
    assert "it ended behind 9 windows of each server by turns: http" in out
    assert "\nConcurrency 1\n" in out
    for name in ("run.json", "run.vs.json"):
        (level,) = json.loads((tmp_path / name).read_text())["levels"]
        assert len(level["windows"]) == 9
        assert not level["stable"]


def test_a_pair_with_a_window_that_has_no_answer_is_left_out(tmp_path, capsys):
    """Two requests that take longer than a window: the second one of them has it for itself."""
    stalls = takes(0.15)
    with StubServer() as first, StubServer(lambda number: stalls(number) if number % 100 < 2 else "") as second:
        code = versus(
            first, second, "-r", "24", "--request-count", "0", "-p", "50", "--fail-above", "1e9",
            "--json", tmp_path / "run.json",
        )  # fmt: skip
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    left_out = int(re.search(r"; (\d+) more pairs are left out, in which a server had no answer", out)[1])
    for name in ("run.json", "run.vs.json"):
        (level,) = json.loads((tmp_path / name).read_text())["levels"]
        assert len(level["windows"]) == 24 - left_out
        assert all(each["responses"] for each in level["windows"])


def test_windows_shorter_than_an_answer_end_it_soon(capsys):
    with StubServer() as first, StubServer(takes(0.2)) as second:
        assert versus(first, second, "-r", "200", "--request-count", "0", "-p", "20") == 99
        assert second.count < 20
    assert "-p 20 ms is shorter than an answer takes" in capsys.readouterr().err


def test_requests_that_fail_are_counted_and_shown(capsys):
    with StubServer() as first, StubServer(lambda number: "" if number % 7 else "no luck") as second:
        assert versus(first, second) == 1
    shown = capsys.readouterr().out
    assert "Failed requests: " in shown
    assert "requests of the second failed, and are in no figure." in shown


def test_models_with_other_inputs_are_not_compared(capsys, monkeypatch):
    with StubServer() as first, StubServer() as second:
        other = {**METADATA, "inputs": [{"name": "C", "datatype": "INT8", "shape": [-1, 4]}]}
        second.metadata = other
        assert versus(first, second) == 99
    assert re.search(
        r"the inputs of model 'stub' are \{'A': 'FP32'\} at http://\S+ and \{'C': 'INT8'\} at http",
        capsys.readouterr().err,
    )


def test_windows_of_two_runs_that_were_not_alternated_are_not_paired(tmp_path, capsys):
    with StubServer() as first, StubServer() as second:
        for count, name in ((8, "a"), (9, "b")):
            assert versus(first, second, "-r", count, "--fail-above", "1e9", "--json", tmp_path / f"{name}.json") == 0
    assert cli_bench.main(["compare", "--paired", str(tmp_path / "a.json"), str(tmp_path / "b.vs.json")]) == 99
    assert "has 8 windows at concurrency 1 and" in capsys.readouterr().err
