from tisfast import limits
from tisfast.processes.backoff import Backoff


def test_delays_double_up_to_the_bound_for_workers_that_never_get_ready():
    backoff = Backoff()
    delays = [backoff.next_seconds(was_ready=False, lived_seconds=0) for _ in range(40)]
    assert delays[:3] == [0.05, 0.1, 0.2]
    assert delays[-1] == limits.RESTART_DELAY_MS_MAX / 1000


def test_a_worker_that_was_ready_is_never_away_for_long():
    backoff = Backoff()
    delays = [backoff.next_seconds(was_ready=True, lived_seconds=0) for _ in range(1000)]
    assert max(delays) == limits.RESTART_DELAY_READY_MS_MAX / 1000


def test_a_long_life_forgives_earlier_deaths():
    backoff = Backoff()
    for _ in range(5):
        backoff.next_seconds(was_ready=True, lived_seconds=0)
    assert backoff.next_seconds(was_ready=True, lived_seconds=limits.RESTART_STEADY_SECONDS) == 0.05


def test_forgiving_starts_the_row_anew():
    backoff = Backoff()
    backoff.next_seconds(was_ready=True, lived_seconds=0)
    backoff.forgive()
    assert backoff.deaths == 0
    assert backoff.next_seconds(was_ready=True, lived_seconds=0) == 0.05
