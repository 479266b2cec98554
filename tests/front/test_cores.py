"""Who shares a core with whom: where the client is brought, what is tried, and that nobody stays pinned."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tisfast import limits
from tisfast.front.cores import ALONE, CROWDED, STAY, WITH_SERVER, WITH_WORKER, Places, settle

FAST_US, SLOW_US, SLOWEST_US = 300, 345, 600  # of a look; the second is not bad enough to be told early
FIRST_US, LAST_US = limits.CORES_HOLD_MS_FIRST * 1000, limits.CORES_HOLD_MS_MAX * 1000
AWAY, JUDGED, SURE = limits.CORES_LOOKS_AWAY, limits.CORES_LOOKS_JUDGED, limits.CORES_LOOKS_SURE
EARLY_US = 100 * FAST_US  # a good deal less than until the first trial


class Looks:
    """A series of looks at a client that stays where it is."""

    def __init__(self):
        self.places, self.now_us = Places(), 5_000_000

    def see(self, place, count, us=FAST_US):
        """What is wanted after each of `count` looks, `us` apart."""
        steps = []
        for _ in range(count):
            self.now_us += us
            steps.append(self.places.step(place, self.now_us * 1000))
        return steps

    def until_wanted(self, place, us=FAST_US):
        """What is wanted first, and how long that took."""
        began = self.now_us
        while True:
            [step] = self.see(place, 1, us)
            if step != STAY:
                return step, self.now_us - began
            assert self.now_us - began < 2 * LAST_US

    def until_home(self, place, us):
        """How long it takes until it is brought home; what else is tried meanwhile it does not follow."""
        began = self.now_us
        while self.until_wanted(place, us)[0] != WITH_SERVER:
            pass
        return self.now_us - began

    def judged(self, place, us, looks=JUDGED):
        """What is wanted after that many looks, which a judgement needs; one before them only says since when."""
        *before, last = self.see(place, looks + 1, us)
        assert set(before) == {STAY}
        return last

    def tried(self):
        """Wait until another place is tried: which."""
        step, _ = self.until_wanted(WITH_SERVER)
        assert step in (WITH_WORKER, ALONE)
        return step


def test_a_client_beside_the_server_is_left_there():
    assert set(Looks().see(WITH_SERVER, EARLY_US // FAST_US)) == {STAY}


@pytest.mark.parametrize("place", [WITH_WORKER, ALONE, CROWDED])
def test_a_client_that_is_not_at_home_is_brought_there(place):
    *before, last = Looks().see(place, AWAY + 1)  # the first look only says since when
    assert set(before) == {STAY} and last == WITH_SERVER


def test_clients_on_both_cores_are_not_followed():
    looks = Looks()
    for _ in range(10_000):
        assert set(looks.see(WITH_WORKER, AWAY) + looks.see(WITH_SERVER, 1)) == {STAY}


def test_few_requests_tell_nothing():
    assert set(Looks().see(WITH_WORKER, 10_000, limits.CORES_LOOK_US_MAX + 1)) == {STAY}


def test_another_place_is_tried_and_is_home_when_it_is_better():
    looks = Looks()
    place, waited = looks.until_wanted(WITH_SERVER, SLOW_US)
    assert waited == pytest.approx(FIRST_US, rel=0.01)
    assert looks.judged(place, FAST_US, SURE) == STAY
    assert looks.see(WITH_SERVER, AWAY + 1, SLOW_US)[-1] == place


def test_a_place_that_is_better_only_at_first_is_left_again():
    looks = Looks()
    place, _ = looks.until_wanted(WITH_SERVER, SLOW_US)
    assert looks.judged(place, FAST_US) == STAY
    assert looks.until_wanted(place, SLOW_US) == (WITH_SERVER, (SURE - JUDGED) * SLOW_US)


def test_both_other_places_are_tried():
    looks = Looks()
    first = looks.tried()
    assert looks.judged(first, SLOW_US) == WITH_SERVER
    assert {first, looks.tried()} == {WITH_WORKER, ALONE}


def test_a_place_that_is_worse_is_left_again():
    looks = Looks()
    place = looks.tried()
    assert looks.judged(place, SLOW_US) == WITH_SERVER
    assert WITH_SERVER in looks.see(place, AWAY, SLOW_US)  # where home is, still


def test_a_place_that_is_much_worse_is_left_early():
    looks = Looks()
    *before, last = looks.see(looks.tried(), AWAY + 1, SLOWEST_US)
    assert set(before) == {STAY} and last == WITH_SERVER


def test_trials_in_vain_come_less_often_up_to_a_bound():
    looks, began = Looks(), {WITH_WORKER: [], ALONE: []}
    while len(began[ALONE]) < 6:
        place = looks.tried()
        began[place].append(looks.now_us)
        assert looks.judged(place, SLOW_US) == WITH_SERVER
    for times in began.values():
        waits = [after - before for before, after in itertools.pairwise(times)]
        expected = [min(FIRST_US * limits.CORES_HOLD_GROWTH**i, LAST_US) for i in range(len(waits))]
        assert waits == pytest.approx(expected, rel=0.4)  # they wait for each other's looks, too
        assert waits[-1] == pytest.approx(LAST_US, rel=0.01)


@pytest.mark.parametrize("place", [WITH_WORKER, ALONE])
@pytest.mark.parametrize(("us", "looks_needed"), [(SLOW_US, JUDGED), (SLOWEST_US, AWAY)])
def test_a_way_home_that_was_worse_is_gone_back_and_not_again_at_once(place, us, looks_needed):
    looks = Looks()
    assert looks.see(place, AWAY + 1)[-1] == WITH_SERVER
    assert looks.judged(WITH_SERVER, us, looks_needed) == place
    assert set(looks.see(place, EARLY_US // FAST_US)) == {STAY}


def test_a_core_for_all_is_nobodys_home():
    looks = Looks()
    assert looks.see(CROWDED, AWAY + 1)[-1] == WITH_SERVER
    assert looks.judged(WITH_SERVER, SLOW_US) == STAY
    assert set(looks.see(CROWDED, EARLY_US // FAST_US)) == {STAY}  # it was of no use


def test_a_way_home_in_vain_is_not_gone_again_at_once_but_from_elsewhere():
    looks = Looks()
    assert looks.see(ALONE, AWAY + 1)[-1] == WITH_SERVER
    assert looks.judged(WITH_SERVER, FAST_US) == STAY
    assert set(looks.see(ALONE, EARLY_US // FAST_US)) == {STAY}
    assert looks.see(WITH_WORKER, AWAY + 1)[-1] == WITH_SERVER
    assert WITH_SERVER in looks.see(ALONE, 2 * FIRST_US // FAST_US)


def test_a_way_home_that_was_worth_it_is_gone_again_at_once():
    looks = Looks()
    for _ in range(4):
        assert looks.see(ALONE, AWAY + 1, SLOWEST_US)[-1] == WITH_SERVER
        assert looks.judged(WITH_SERVER, FAST_US) == STAY


def test_a_client_that_leaves_before_it_can_be_told_is_not_run_after():
    looks = Looks()
    assert looks.see(ALONE, AWAY + 1)[-1] == WITH_SERVER
    assert set(looks.see(WITH_SERVER, JUDGED)) == {STAY}  # one too few
    assert set(looks.see(ALONE, EARLY_US // FAST_US)) == {STAY}


def known(looks, place, us):
    """Have it seen there, and at home, long enough for both to be known; home has been in vain, and is for a while."""
    assert looks.see(place, AWAY + 1, us)[-1] == WITH_SERVER
    for _ in range(2):  # never long enough at once for a judgement
        looks.see(WITH_SERVER, JUDGED // 2 + 2)
        looks.see(place, 1, us)
    looks.see(place, JUDGED, us)


def test_from_where_it_is_known_to_be_worse_it_is_brought_home_though_that_was_in_vain():
    looks = Looks()
    known(looks, ALONE, SLOW_US)
    for _ in range(4):
        assert looks.until_home(ALONE, SLOW_US) < 1.05 * FIRST_US
        looks.see(WITH_SERVER, 2)


def test_a_way_home_that_was_worth_it_once_it_is_known_is_gone_at_once():
    looks = Looks()
    known(looks, ALONE, SLOW_US)
    looks.until_home(ALONE, SLOW_US)
    for _ in range(4):
        looks.see(WITH_SERVER, AWAY + 1)
        assert looks.see(ALONE, AWAY + 1, SLOW_US)[-1] == WITH_SERVER


def test_a_way_home_that_is_undone_at_once_is_gone_less_often_up_to_a_bound():
    looks = Looks()
    known(looks, ALONE, SLOW_US)
    waits = [looks.until_home(ALONE, SLOW_US) for _ in range(4)]
    first = limits.CORES_RETURN_MS_FIRST * 1000
    growing = [min(first * limits.CORES_HOLD_GROWTH**i, FIRST_US) for i in range(len(waits))]
    assert waits == pytest.approx(growing, rel=0.35)  # and the looks until it counts as undone
    assert waits[-1] == pytest.approx(FIRST_US, rel=0.05)


def test_what_is_known_is_forgotten_when_other_requests_come():
    looks = Looks()
    known(looks, ALONE, SLOW_US)
    looks.places.begin()
    looks.see(WITH_SERVER, JUDGED)
    assert set(looks.see(ALONE, AWAY + 1, SLOW_US)) == {STAY}


def test_where_the_scheduler_has_it_and_requests_are_known_to_take_less_is_home():
    looks = Looks()
    looks.see(WITH_SERVER, SURE + 1, SLOW_US)
    for _ in range(8):  # in the end it is not run after any more
        looks.see(ALONE, SURE + 1)
        looks.see(WITH_SERVER, AWAY, SLOW_US)
    assert set(looks.see(ALONE, SURE)) == {STAY}
    assert looks.see(WITH_SERVER, AWAY + 1, SLOW_US)[-1] == ALONE


def test_after_a_pause_all_is_tried_anew():
    looks = Looks()
    for _ in range(8):
        looks.judged(looks.tried(), SLOW_US)
    looks.now_us += limits.CORES_PAUSE_MS * 1000
    _, waited = looks.until_wanted(WITH_SERVER)
    assert waited == pytest.approx(FIRST_US, rel=0.01)


def test_a_core_that_the_host_took_a_few_times_decides_nothing():
    looks = Looks()
    assert looks.see(WITH_WORKER, AWAY + 1)[-1] == WITH_SERVER
    assert set(looks.see(WITH_SERVER, JUDGED - 2)) == {STAY}
    assert set(looks.see(WITH_SERVER, 3, 2000)) == {STAY}  # a quarter of the whole time


PLACES = [WITH_SERVER, WITH_WORKER, ALONE, CROWDED]


@given(
    costs_us=st.permutations([300, 345, 500, 700]),
    moves=st.lists(st.tuples(st.integers(500, 5000), st.sampled_from(PLACES)), max_size=9),
)
@example(costs_us=[500, 345, 700, 300], moves=[(500, 0), (506, 0), (2005, 0)])  # amid each trial
def test_a_client_that_a_scheduler_moves_about_is_nearly_always_at_its_best_place(costs_us, moves):
    looks, place, at_best = Looks(), ALONE, 0
    best = min(WITH_SERVER, WITH_WORKER, ALONE, key=costs_us.__getitem__)
    moves = [*moves, (20_000, CROWDED)]
    for count, moved_to in moves:
        for _ in range(count):
            at_best += costs_us[place] <= costs_us[best]
            [step] = looks.see(place, 1, costs_us[place])
            place = place if step == STAY else step
        place = moved_to
    total = sum(count for count, _ in moves)
    # Until the first trials any may be home; then a move costs its looks, or a hold when it came amid a trial.
    assert at_best > 0.9 * total - 2 * FIRST_US // min(costs_us) - 500 * len(moves)


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
def test_each_goes_to_its_core_and_nobody_stays_pinned(worker):
    def work(two):
        os.sched_setaffinity(worker, two)
        found = []
        for ours, theirs in (two, reversed(two), two):
            found.append(settle(worker, ours, theirs) and os.sched_getaffinity(worker) == set(two))
        return found

    assert with_two_cores(work) == [True] * 3


@several_cores
def test_a_worker_that_was_pinned_stays(worker):
    def work(two):
        os.sched_setaffinity(worker, two[:1])
        return settle(worker, *two), os.sched_getaffinity(worker) == set(two[:1])

    assert with_two_cores(work) == (False, True)


@several_cores
def test_a_server_that_was_pinned_stays(worker):
    def work(two):
        os.sched_setaffinity(0, two[:1])
        try:
            return settle(worker, *reversed(two)), os.sched_getaffinity(0) == set(two[:1])
        finally:
            os.sched_setaffinity(0, two)

    assert with_two_cores(work) == (False, True)


@several_cores
def test_a_worker_that_is_gone_is_no_error(worker):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert with_two_cores(lambda two: settle(gone.pid, *two)) is False
