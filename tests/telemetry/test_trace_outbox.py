"""The queue to the thread that writes: order, bound, end."""

from __future__ import annotations

import threading

from tisfast.telemetry.trace_outbox import Outbox


class Item(int):
    """A number as a trace."""

    nbytes = 10


def outbox(write, **bounds):
    usual = {"queued_max": 100, "bytes_max": 1000, "portion_max": 10, "delay_seconds": 0.0}
    return Outbox("test", write, **{**usual, **bounds})


def test_everything_is_written_in_order_and_in_portions():
    portions = []
    box = outbox(portions.append, portion_max=3)
    for number in range(10):
        box.put(Item(number))
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
    box.put(Item(0))
    begun.wait()
    for number in range(1, 6):
        box.put(Item(number))
    free.set()
    box.close(5)
    assert written == [0, 1, 2]
    assert "3 traces were dropped: 2 traces, or 1000 bytes of tensors, were waiting already" in caplog.text


def test_bytes_are_bounded_until_they_are_written(caplog):
    free, begun, written = threading.Event(), threading.Event(), []

    def write(portion):
        begun.set()
        free.wait()
        written.extend(portion)

    box = outbox(write, bytes_max=29)
    box.put(Item(0))
    begun.wait()
    box.put(Item(1))
    box.put(Item(2))  # the first one still counts
    free.set()
    box.close(5)
    assert written == [0, 1]
    assert "1 traces were dropped: 100 traces, or 29 bytes of tensors, were waiting already" in caplog.text


def test_a_delay_ends_with_a_full_portion_or_the_end():
    portions = []
    box = outbox(portions.append, portion_max=2, delay_seconds=60)
    for number in range(3):
        box.put(Item(number))
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
    box.put(Item(1))
    box.put(Item(2))
    box.close(5)
    assert written == ["failed", 2]
    assert "1 traces could not be written" in caplog.text


def test_nothing_traced_needs_no_thread():
    before = threading.active_count()
    box = outbox(lambda _: None)
    box.close(5)
    assert threading.active_count() <= before  # one of an earlier test may have ended meanwhile
