"""Who shares a core with whom: when the server joins its client, when it leaves it, and that nobody stays pinned."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from tisfast import limits
from tisfast.front.cores import Cores, change_places

FAST_US, SLOW_US = 300, 600
HOLD_US = limits.CORES_HOLD_MS_FIRST * 1000


class Looks:
    """A series of looks, `us` apart."""

    def __init__(self):
        self.cores, self.now_us = Cores(), 1_000_000

    def see(self, together, count, us):
        steps = []
        for _ in range(count):
            self.now_us += us
            steps.append(self.cores.step(together, self.now_us * 1000))
        return steps

    def joins(self, us=SLOW_US):
        """After how many looks at a client on the other core the server goes there; None: it does not soon."""
        steps = self.see(False, limits.CORES_LOOKS_APART + 1, us)
        return steps.index(True) + 1 if True in steps else None

    def us_until_joined(self):
        """How long the client is on the other core before the server goes there."""
        began = self.now_us
        while self.see(False, 1, FAST_US) != [True]:
            assert self.now_us - began < 2000 * limits.CORES_HOLD_MS_MAX
        return self.now_us - began

    def judged(self, us):
        """Whether it leaves its client again when it has been there for long enough."""
        *before, last = self.see(True, limits.CORES_LOOKS_JUDGED + 1, us)
        assert set(before) == {False}
        return last


def test_a_client_beside_the_server_is_left_there():
    assert set(Looks().see(True, 1000, FAST_US)) == {False}


def test_a_client_on_the_other_core_is_joined():
    assert Looks().joins() == limits.CORES_LOOKS_APART + 1  # the first look only says since when


def test_clients_on_both_cores_are_not_followed():
    looks = Looks()
    for _ in range(200):
        assert set(looks.see(False, limits.CORES_LOOKS_APART, FAST_US) + looks.see(True, 1, FAST_US)) == {False}


def test_few_requests_tell_nothing():
    assert set(Looks().see(False, 1000, limits.CORES_LOOK_US_MAX + 1)) == {False}


def test_what_was_worth_it_is_done_again_at_once():
    looks = Looks()
    for _ in range(5):
        assert looks.joins(SLOW_US)
        assert looks.judged(FAST_US) is False


def test_what_was_worse_is_undone_and_tried_again_only_after_a_while():
    looks = Looks()
    assert looks.joins(FAST_US)
    assert looks.judged(SLOW_US) is True
    assert looks.joins() is None
    assert True in looks.see(False, 1 + HOLD_US // FAST_US, FAST_US)


def test_what_changed_nothing_is_left_and_tried_again_only_after_a_while():
    looks = Looks()
    assert looks.joins(FAST_US)
    assert looks.judged(FAST_US) is False
    assert looks.joins() is None


def test_each_try_in_vain_doubles_the_wait_up_to_a_bound():
    looks, waits = Looks(), []
    for _ in range(10):
        waits.append(looks.us_until_joined())
        assert looks.judged(SLOW_US) is True
    assert waits[1:4] == pytest.approx([HOLD_US, 2 * HOLD_US, 4 * HOLD_US], rel=0.05)
    assert waits[-1] == pytest.approx(limits.CORES_HOLD_MS_MAX * 1000, rel=0.05)


def test_a_client_that_leaves_again_at_once_is_not_run_after():
    looks = Looks()
    assert looks.joins()
    looks.see(True, limits.CORES_LOOKS_JUDGED, FAST_US)  # one too few to judge
    assert looks.joins() is None


def with_two_cores(work):
    """What `work` gives on a thread that may use two cores, which come as its argument."""
    found = []

    def run():
        two = sorted(os.sched_getaffinity(0))[:2]
        os.sched_setaffinity(0, two)  # of this thread only
        found.append(work(two))
        assert os.sched_getaffinity(0) == set(two)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture
def worker():
    """A process that yields, as a worker does that waits."""
    process = subprocess.Popen([sys.executable, "-c", "import os\nwhile True: os.sched_yield()"])
    yield process.pid
    process.kill()
    process.wait()


several_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")


@several_cores
def test_places_are_changed_and_nobody_stays_pinned(worker):
    def work(two):
        os.sched_setaffinity(worker, two)
        return [change_places(worker, core) and os.sched_getaffinity(worker) == set(two) for core in (*two, *two)]

    assert with_two_cores(work) == [True] * 4


@several_cores
def test_a_worker_that_was_pinned_stays(worker):
    def work(two):
        os.sched_setaffinity(worker, two[:1])
        return change_places(worker, two[1]), os.sched_getaffinity(worker) == set(two[:1])

    assert with_two_cores(work) == (False, True)


@several_cores
def test_a_server_that_was_pinned_stays(worker):
    def work(two):
        os.sched_setaffinity(0, two[:1])
        try:
            return change_places(worker, two[0]), os.sched_getaffinity(0) == set(two[:1])
        finally:
            os.sched_setaffinity(0, two)

    assert with_two_cores(work) == (False, True)


@several_cores
def test_a_worker_that_is_gone_is_no_error(worker):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert with_two_cores(lambda two: change_places(gone.pid, two[0])) is False
