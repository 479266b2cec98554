"""Sessions that are ended: of servers under measurement, and of nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perf.oracle.server import HeldSession
from tests.waiting import wait_until

LAST_NUMBER = Path("/proc/sys/kernel/ns_last_pid")
TRIES = 200
WAITS = [sys.executable, "-c", "import signal; signal.pause()"]
WITH_CHILD = [sys.executable, "-c", f"import subprocess; subprocess.run({WAITS!r})"]


def with_number(wanted):
    """A process that has this number; others may take it first, or the kernel may not let us choose."""
    for _ in range(TRIES):
        try:
            LAST_NUMBER.write_text(str(wanted - 1))
        except OSError as error:
            pytest.skip(f"the kernel chooses the numbers of processes here: {error}")
        process = subprocess.Popen(WAITS, start_new_session=True)
        if process.pid == wanted:
            return process
        process.kill()
        process.wait()
    pytest.skip("others start too many processes")


def test_who_has_the_number_of_one_that_has_ended_is_not_killed():
    leader = subprocess.Popen(WAITS, start_new_session=True)
    with HeldSession(leader.pid) as family:
        assert family.pids == [leader.pid]
        leader.kill()
        leader.wait()
        other = with_number(leader.pid)
        try:
            family.kill()
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.2)
            with HeldSession(leader.pid, is_reaped=True) as another:
                assert not another.pids
        finally:
            other.kill()
            other.wait()


def test_all_of_a_session_end_though_their_leader_has():
    leader = subprocess.Popen(WITH_CHILD, start_new_session=True)
    wait_until(lambda: len(held(leader.pid)) == 2, lambda: "the child is there")
    with HeldSession(leader.pid) as family:
        leader.kill()
        leader.wait()
        assert held(leader.pid)
        family.kill()
        wait_until(lambda: not held(leader.pid), lambda: "nobody is left")


def held(leader):
    with HeldSession(leader) as family:
        return family.pids
