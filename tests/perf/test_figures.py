"""Medians and ratios, and clients that leave nothing behind."""

from __future__ import annotations

import math
import os
import select
import subprocess
import sys

import pytest

from perf.figures import Figures, RunFailed, ServerDied, middle, ratio, run_client

TELLING = "import os; print(os.getpid(), os.getsid(0), os.getppid())"
LEAVING = """
import os, signal
if child := os.fork():
    print(child)
else:
    os.close(1), os.close(2)
    signal.pause()
"""
ENDING_SECONDS_MAX = 60


def ends(pid: int) -> bool:
    """Whether a process is gone, or is so soon."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], ENDING_SECONDS_MAX)[0])
    finally:
        os.close(process)


def test_the_middle_is_taken_figure_by_figure():
    assert middle([Figures(1, 9, 5), Figures(2, 8, 6), Figures(9, 7, 1)]) == Figures(2, 8, 5)


def test_a_ratio_is_of_the_second_over_the_first():
    assert ratio(Figures(10, 4, 8), Figures(30, 1, 8)) == Figures(3, 0.25, 1)


def test_what_is_not_known_has_no_ratio():
    found = ratio(Figures(10, math.nan, math.nan), Figures(30, math.nan, math.nan))
    assert found.rate == 3 and math.isnan(found.p50)
    assert found.facts() == {"rate": 3, "p50": None, "p99": None}


def test_a_client_leads_a_session_of_its_own():
    pid, session, parent = map(int, run_client([sys.executable, "-c", TELLING], 30).split())
    assert pid == session and parent == os.getpid()


def test_children_that_a_client_leaves_are_ended():
    assert ends(int(run_client([sys.executable, "-c", LEAVING], 30)))


def test_a_client_that_does_not_end_is_ended():
    with pytest.raises(RunFailed, match=r"did not end within 0\.1 s"):
        run_client(["/bin/sleep", "60"], 0.1)


def test_a_client_whose_server_dies_is_ended():
    with (
        subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as server,
        subprocess.Popen(["/bin/sh", "-c", f"sleep 0.2; kill {server.pid}"]),
        pytest.raises(ServerDied, match=rf"process {server.pid}\) ended while sleep was running"),
    ):
        run_client(["/bin/sleep", "60"], 30, servers=[server.pid])


def test_a_client_whose_server_has_died_is_not_awaited():
    with subprocess.Popen(["/bin/true"]) as server:
        pass
    with pytest.raises(ServerDied):
        run_client(["/bin/sleep", "60"], 30, servers=[server.pid])


def test_a_client_that_ends_before_its_server_has_its_output():
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as server:
        assert run_client(["/bin/echo", "figures"], 30, servers=[server.pid]) == "figures\n"
