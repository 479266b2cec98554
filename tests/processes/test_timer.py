import time

from tests.waiting import until
from tisfast.processes.timer import RuntimeTimer


class Timed:
    """Wants to be called at each of `due_ns`, in order."""

    def __init__(self, *due_ns: int):
        self.due = list(due_ns)
        self.called: list[int] = []
        self.timer_changed = None

    def next_timer_ns(self) -> int:
        return self.due[0] if self.due else 0

    def on_timer(self) -> None:
        self.called.append(time.monotonic_ns())
        self.due.pop(0)


def start(loop, *after_us: int) -> tuple[Timed, RuntimeTimer]:
    now = time.monotonic_ns()
    timed = Timed(*(now + us * 1000 for us in after_us))
    timer = RuntimeTimer(timed, loop, time.monotonic_ns)
    timed.timer_changed()
    return timed, timer


def test_it_calls_when_it_is_time_and_never_before(loop, run):
    timed, timer = start(loop, 300, 2500, 2600)
    due = list(timed.due)
    run(until(lambda: len(timed.called) == 3))
    timer.close()
    assert all(called >= wanted for called, wanted in zip(timed.called, due, strict=True))


def test_an_earlier_time_replaces_a_later_one(loop, run):
    timed, timer = start(loop, 3_600_000_000)
    timed.due.insert(0, time.monotonic_ns() + 1_000_000)
    timed.timer_changed()
    run(until(lambda: timed.called))
    timer.close()


def test_closed_means_never_again(loop, run):
    timed, timer = start(loop, 1000)
    timer.close()
    later, its_timer = start(loop, 5000)
    run(until(lambda: later.called))
    its_timer.close()
    assert timed.called == [] and timed.timer_changed is None
