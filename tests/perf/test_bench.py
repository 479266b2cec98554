"""Which rows are measured, and how long that takes."""

from __future__ import annotations

import pytest

from perf.bars import BARS, METRICS_BARS
from perf.bench import MEMORY_CASE, START_CASE, select
from perf.compare import Effort

EFFORT = Effort(3, 1.5)


def test_all_rows_are_measured_unless_some_are_wanted():
    everything = select("")
    assert everything.loads == list(BARS)
    assert everything.metrics == list(METRICS_BARS)
    assert everything.singles == [START_CASE, MEMORY_CASE]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_rows_of_a_protocol(protocol):
    selection = select(protocol)
    assert selection.loads == [bar for bar in BARS if bar.load.protocol == protocol]
    assert not selection.singles


@pytest.mark.parametrize(
    ("only", "count", "clients"),
    [("h2load", 1, {"h2load"}), ("shared memory grpc", 2, {"perf_analyzer"}), ("wrk 1$", 3, {"wrk"})],
)
def test_rows_by_title_client_and_concurrency(only, count, clients):
    selection = select(only)
    assert len(selection.lines()) == count
    assert selection.clients() == clients


def test_one_number_of_each_server_can_be_wanted_alone():
    assert select("start").lines() == [START_CASE]


def test_nothing_matches_what_is_nowhere():
    assert not select("ftp").lines()


def test_a_part_is_short_enough_to_wait_for():
    assert select("grpc").seconds(EFFORT) < 480
    assert select("").seconds(EFFORT) < 1300


def test_quick_rounds_take_less():
    assert select("").seconds(Effort(1, 1.0)) < select("").seconds(EFFORT) / 3
