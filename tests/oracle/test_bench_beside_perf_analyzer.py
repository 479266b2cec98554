"""tisfast bench and the real perf_analyzer measure the real Triton: what does not depend on speed is the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from perf.oracle import launch
from tests.oracle.json_shape import shape
from tests.oracle.servers import Servers
from tests.system.helpers import ROOT

SECONDS_MAX: Final = 120
OWN: Final = ("service time", "Latency From", "    Processes: ", "    GPU-")
"""In these lines and columns tisfast bench says what perf_analyzer does not: at a rate, and of a server beside it."""
BUSY: Final = ("Avg send request rate", "requests were delayed")
"""Lines that either has where the machine was busy."""
BOTH: Final = ("perf_analyzer", "tisfast bench")


class Said(NamedTuple):
    """What a client printed and wrote of one case."""

    out: str
    csv: list[list[str]]
    export: dict[str, Any]

    def figure(self, name: str) -> float:
        found = re.search(rf"^ +{name}: ([\d.e+]+)", self.out, re.MULTILINE)
        assert found, self.out
        return float(found[1])

    def lines(self) -> list[str]:
        """Of the level: without numbers, and without what is ours alone."""
        level = self.out[self.out.index("  Client: ") :].split("  Trust: ")[0].split("Inferences/Second")[0]
        lines = [re.sub(r"\d+(\.\d+)?", "N", line).rstrip() for line in level.splitlines()]
        return [line for line in lines if line and not any(some in line for some in (*OWN, *BUSY))]

    def columns(self) -> list[str]:
        return [name for name in self.csv[0] if not any(own in name for own in OWN)]


Measured = Callable[..., Mapping[str, Said]]


@pytest.fixture
def measured(triton: Servers, tmp_path: Path) -> Measured:
    """The same case by both, one after the other, against one server."""

    def run(*flags: str) -> Mapping[str, Said]:
        server = triton.get()
        url = server.grpc_address if "grpc" in flags else server.address
        found = {}
        for name in BOTH:
            csv, export = tmp_path / f"{name}.csv", tmp_path / f"{name}.json"
            files = ["--verbose-csv", "-f", str(csv), "--profile-export-file", str(export)]
            typed = ["-u", url, "-p", "400", "-s", "10000", *flags, *files]
            what = launch.perf_analyzer(typed)
            if name == "tisfast bench":
                what = launch.Launch([sys.executable, "-m", "tisfast", "bench", *typed], {**os.environ})
            done = subprocess.run(
                what.command, cwd=ROOT, env=what.env, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
            )
            assert done.returncode == 0, done.stdout + done.stderr
            rows = [line.rstrip(",").split(",") for line in csv.read_text().splitlines() if line]
            found[name] = Said(done.stdout, rows, json.loads(export.read_text()))
        return found

    return run


CASES: Final = {
    "http": ["-m", "add_sub", "--concurrency-range", "2"],
    "grpc": ["-m", "add_sub", "-i", "grpc", "--concurrency-range", "3"],
    "stream": ["-m", "add_sub", "-i", "grpc", "--async", "--streaming", "--concurrency-range", "3"],
    "batch": ["-m", "digits", "--shape", "IMAGE:8,8", "-b", "4"],
    "rate": ["-m", "add_sub", "--request-rate-range", "200", "-p", "800"],
    "percentile": ["-m", "add_sub", "--percentile", "75"],
}


@pytest.mark.parametrize("case", CASES)
def test_both_say_the_same_of_one_server(measured: Measured, case: str) -> None:
    both = measured(*CASES[case])
    theirs, ours = (both[name] for name in BOTH)
    assert ours.lines() == theirs.lines()
    assert ours.columns() == theirs.columns()
    assert shape(ours.export["experiments"]) == shape(theirs.export["experiments"])
    heads = [said.export["experiments"][0]["experiment"] for said in (ours, theirs)]
    assert heads[0] == heads[1]
    for said in (ours, theirs):
        holds(said, batch=4 if case == "batch" else 1, under_way=3)
    if case == "rate":
        for said in (ours, theirs):  # an open loop sends as many as are asked for, however fast the server is
            assert said.figure("Throughput") == pytest.approx(200, rel=0.15)


def holds(said: Said, batch: int, under_way: int) -> None:
    """What must be true of either client's figures, whatever the speed."""
    count, (experiment,) = said.figure("Request count"), said.export["experiments"]
    bounds = experiment["window_boundaries"]
    ended = [each["response_timestamps"][-1] for each in experiment["requests"]]
    within = sum(bounds[0] <= at <= bounds[-1] for at in ended)
    assert within == pytest.approx(count, abs=under_way)
    assert said.figure("Throughput") == pytest.approx(batch * count / ((bounds[-1] - bounds[0]) / 1e9), rel=0.1)
    # The server's counters hold whole windows, and what is under way at their ends.
    assert said.figure("Successful request count") == pytest.approx(count, rel=0.05, abs=3 * under_way)
    inferences = batch * said.figure("Successful request count")  # the server does not count both at one moment
    assert said.figure("Inference count") == pytest.approx(inferences, abs=3 * batch * under_way)
    assert all(each["timestamp"] < each["response_timestamps"][0] for each in experiment["requests"])
    row = dict(zip(said.csv[0], said.csv[1], strict=False))
    assert float(row["Inferences/Second"]) == pytest.approx(said.figure("Throughput"), rel=1e-4)
    assert int(row["p50 latency"]) == said.figure("p50 latency")
