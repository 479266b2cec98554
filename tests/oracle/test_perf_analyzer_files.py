"""The files and lines of the real perf_analyzer, beside those that tisfast bench writes of a made run."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from perf.oracle import launch
from tests.bench.made_levels import latencies, level_of, run_of
from tests.oracle.json_shape import shape
from tests.oracle.servers import Servers
from tisfast.bench.csv_output import csv_text
from tisfast.bench.json_output import profile_export
from tisfast.bench.results import Level, Run, Settings
from tisfast.bench.text import level_text, summary

SECONDS_MAX: Final = 120
OWN_LINES: Final = "  Trust: "
"""What follows in a level's text perf_analyzer does not say."""
OWN_LATENCY: Final = " from the intended time"
"""Nor what follows in a line of the summary."""

Measured = Callable[..., "tuple[str, str, dict[str, Any]]"]


@pytest.fixture
def measured(triton: Servers, tmp_path: Path) -> Measured:
    def run(*flags: str) -> tuple[str, str, dict[str, Any]]:
        csv, export = tmp_path / "out.csv", tmp_path / "out.json"
        # Any stability will do: what is looked at are names.
        common = ["-m", "add_sub", "-p", "300", "-s", "10000", "-f", str(csv), "--profile-export-file", str(export)]
        what = launch.perf_analyzer(["-u", f"localhost:{triton.get().http}", *common, *flags])
        done = subprocess.run(
            what.command, env=what.env, capture_output=True, text=True, check=True, timeout=SECONDS_MAX
        )
        return done.stdout, csv.read_text(), json.loads(export.read_text())

    return run


def without_numbers(text: str) -> list[str]:
    text = text.replace("requests per seconds", "requests per second")  # of 2.41; later ones say it so
    return [re.sub(r"\d+(\.\d+)?", "N", line).rstrip() for line in text.splitlines()]


def made(level: Level, **settings: Any) -> Run:
    return run_of(level_of(latencies(900), level), settings=Settings(**settings))


@pytest.mark.parametrize(
    ("flags", "level", "settings"),
    [
        ((), Level("concurrency", 1.0), {}),
        (("--percentile=75",), Level("concurrency", 1.0), {"percentile": 75}),
        (("--request-rate-range=50",), Level("request_rate", 50.0), {}),
    ],
)
def test_columns_keys_and_lines_are_those_of_the_real_one(measured, flags, level, settings):
    stdout, csv, export = measured("--verbose-csv", *flags)
    ours = made(level, **settings)

    columns = csv_text(ours, verbose=True).splitlines()[0].split(",")
    if ours.levels[0].open_loop:
        columns = columns[: columns.index("Latency From")]  # what follows is ours alone
    assert columns == csv.splitlines()[0].split(",")
    mine = json.loads("".join(profile_export(ours, "2.41.1")))
    assert shape(mine["experiments"]) == shape(export["experiments"])
    assert mine["version"] == export["version"]
    text = level_text(ours.levels[0], ours.settings, 1).split(OWN_LINES)[0] + "\n" + summary(ours)
    theirs = without_numbers(stdout)
    for line in without_numbers(text):
        if "service times" not in line and "service time:" not in line:
            assert line.split(OWN_LATENCY)[0] in theirs, line
