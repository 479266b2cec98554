"""Which rows are measured, how long that takes, and what happens where a server dies."""

from __future__ import annotations

import subprocess

import pytest

from perf import pytriton_rows
from perf.agreement import AGREEMENTS
from perf.bars import BARS, METRICS_BARS
from perf.bench import MEMORY_CASE, START_CASE, TRITON_DEATHS_MAX, _Loads, select
from perf.compare import Effort
from perf.figures import RunFailed, ServerDied
from perf.scaling import SCALING
from perf.unlike import UNLIKE

EFFORT = Effort(3, 1.5)


def test_all_rows_are_measured_unless_some_are_wanted():
    everything = select("")
    assert everything.loads == list(BARS)
    assert everything.metrics == list(METRICS_BARS)
    assert everything.singles == [START_CASE, MEMORY_CASE]
    assert everything.unlike == list(UNLIKE)
    assert everything.scaling == list(SCALING)
    assert everything.pytriton == list(pytriton_rows.BARS)
    assert everything.numbers == list(pytriton_rows.NUMBERS)
    assert everything.agreements == list(AGREEMENTS)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_rows_of_a_protocol(protocol):
    selection = select(protocol)
    assert selection.loads == [bar for bar in BARS if bar.load.protocol == protocol]
    assert not selection.singles


@pytest.mark.parametrize(
    ("only", "count", "clients"),
    [("h2load", 1, {"h2load"}), ("shared memory grpc", 2, {"perf_analyzer"}), ("wrk 1$", 4, {"wrk"})],
)
def test_rows_by_title_client_and_concurrency(only, count, clients):
    selection = select(only)
    assert len(selection.lines()) == count
    assert selection.clients() == clients


def test_one_number_of_each_server_can_be_wanted_alone():
    assert select("start").lines() == [START_CASE]


@pytest.mark.parametrize("group", ["mixed", "neighbours"])
def test_rows_of_a_group(group):
    assert {row.group for row in select(f"{group}:").unlike} == {group}
    assert not select(f"{group}:").clients()


def test_rows_of_growth():
    selection = select("growth:")
    assert selection.scaling == list(SCALING) and selection.lines() == [row.line() for row in SCALING]


def test_rows_beside_pytriton():
    selection = select("pytriton:")
    assert selection.pytriton and selection.numbers and not (selection.loads or selection.singles or selection.unlike)
    assert selection.seconds(Effort(1, 1.0)) < 180


def test_rows_of_both_clients():
    selection = select("clients:")
    assert selection.agreements == list(AGREEMENTS) and selection.clients() == {"perf_analyzer"}
    assert selection.lines() == [row.line() for row in AGREEMENTS]
    assert selection.seconds(EFFORT) < 400


def test_nothing_matches_what_is_nowhere():
    assert not select("ftp").lines()


def test_a_part_is_short_enough_to_wait_for():
    assert select("grpc").seconds(EFFORT) < 660
    assert select("^(?!mixed|neighbours|paced|heavy|growth|pytriton|clients)").seconds(EFFORT) < 1300
    assert select("^(mixed|neighbours|paced|heavy):").seconds(EFFORT) < 1200


def test_quick_rounds_take_less():
    assert select("").seconds(Effort(1, 1.0)) < select("").seconds(EFFORT) / 3


class Standing:
    """A server as rows see it: a process that the test ends."""

    def __init__(self, kind):
        self.kind, self.process = kind, subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
        self.address = self.grpc_address = ""

    pid = property(lambda self: self.process.pid)
    ended = property(lambda self: self.process.poll() is not None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.__exit__(None, None, None)


@pytest.mark.parametrize(("dies", "plays"), [("triton", TRITON_DEATHS_MAX), ("tisfast", 1)])
def test_a_row_is_played_again_where_the_real_triton_died_but_not_where_tisfast_did(monkeypatch, dies, plays):
    """TRITON_DEATHS_MAX times at most; the row behind it is measured with servers that live."""
    standing, failures, played = [], [], []

    def servers():
        standing[:] = Standing("triton"), Standing("tisfast")
        return tuple(standing)

    def pair_that_kills(load, *_, **__):
        played.append(load)
        assert not any(server.ended for server in standing)
        if load != BARS[0].load:
            raise RunFailed("no figures")
        (victim,) = (server for server in standing if server.kind == dies)
        victim.process.kill()
        victim.process.wait(60)
        raise ServerDied("it ended")

    monkeypatch.setattr("perf.bench.pair", pair_that_kills)
    assert _Loads(list(BARS[:2]), EFFORT, failures).measure(servers) == []
    assert played == [BARS[0].load] * plays + [BARS[1].load]
    assert failures == ["it ended", "no figures"]
