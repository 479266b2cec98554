"""The queue to the thread that writes: order, bound, end."""

from __future__ import annotations

import threading

from tisfast.front.trace_outbox import Outbox


def outbox(write, **bounds):
    return Outbox("test", write, **{"queued_max": 100, "portion_max": 10, "delay_seconds": 0.0, **bounds})


def test_everything_is_written_in_order_and_in_portions():
    portions = []
    box = outbox(portions.append, portion_max=3)
    for number in range(10):
        box.put(number)
    box.close(5)
    assert sum(portions, []) == list(range(10))
    assert max(map(len, portions)) <= 3


def test_what_does_not_fit_is_dropped_and_told(caplog):
    free, begun, written = threading.Event(), threading.Event(), []

    def write(portion):
        begun.set()
        free.wait()
        written.extend(portion)

    box = outbox(write, queued_max=2)
    box.put(0)
    begun.wait()
    for number in range(1, 6):
        box.put(number)
    free.set()
    box.close(5)
    assert written == [0, 1, 2]
    assert "3 traces were dropped: 2 were waiting already" in caplog.text


def test_a_delay_ends_with_a_full_portion_or_the_end():
    portions = []
    box = outbox(portions.append, portion_max=2, delay_seconds=60)
    for number in range(3):
        box.put(number)
    box.close(5)
    assert portions == [[0, 1], [2]]


def test_a_bug_while_writing_is_told_and_the_next_portion_written(caplog):
    written = []

    def write(portion):
        if not written:
            written.append("failed")
            raise ValueError("bug")
        written.extend(portion)

    box = outbox(write, portion_max=1)
    box.put(1)
    box.put(2)
    box.close(5)
    assert written == ["failed", 2]
    assert "1 traces could not be written" in caplog.text


def test_nothing_traced_needs_no_thread():
    before = threading.active_count()
    box = outbox(lambda _: None)
    box.close(5)
    assert threading.active_count() == before
