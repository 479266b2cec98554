"""What was handed ahead of sequences and has not begun: where it goes, and what stays with its sequence's state."""

from __future__ import annotations

import pytest

from tests.engine.helpers import MS
from tests.engine.sequence_helpers import END, START, SequenceModel
from tisfast.engine.testing import cancel, sequences
from tisfast.types import Status

both = pytest.mark.parametrize("oldest", [False, True])


def ids(m):
    return [link.ids() for link in m.links]


def ahead(oldest, **changes):
    """Instance 0 executes 1.0 and was handed 1.1 and 2.0, the first of a new sequence."""
    m = SequenceModel(**{"slots": 2, "oldest": oldest} | changes)
    m.ask(1, START)
    if oldest:  # one of each sequence at a time: the other one of the batch is of a third
        m.sent = [m.ask(3, START), m.ask(2, START)]
    else:
        m.sent = [m.ask(1), m.ask(2, START)]
    assert len(m.link.ids()) == 2, m.link.ids()
    return m


# ---- cancelled


@both
def test_a_cancelled_first_request_that_is_not_begun_is_answered_at_once_and_ends_its_sequence(oldest):
    m = ahead(oldest, slots=2 + oldest, max_batch_size=2)
    later = m.ask(2)
    cancel(m.runtime, m.sent[1])
    assert {name: status for name, (status, _) in m.failures().items()} == dict.fromkeys(
        ("2.0", "2.1"), Status.CANCELLED
    )
    assert later.done and 2 not in sequences(m.runtime)
    m.run()
    assert m.run() == [("3.0", 1) if oldest else ("1.1", 0)]
    assert (m.runtime.queued, m.runtime.inflight, m.runtime.pending) == (0, 0, 0)


@both
def test_a_cancelled_request_of_a_sequence_that_has_begun_leaves_the_others_in_their_slots(oldest):
    m = SequenceModel(slots=2, oldest=oldest)
    m.ask(1, START)
    m.ask(2, START)
    m.run()
    m.run()
    m.ask(1)
    if oldest:
        m.run()
    _, two = m.ask(1), m.ask(2)
    places = m.link.places()[-1]
    m.ask(2)
    if not oldest:
        assert places == [("1.2", 0), ("2.1", 1)]
        cancel(m.runtime, two)
        assert set(m.failures()) == {"2.1", "2.2"}
        m.run()
        assert m.run() == [("1.2", 0)]
    else:
        cancel(m.runtime, two)
        m.run()
        assert "1.2" in m.answered


def test_of_two_requests_ahead_the_first_one_s_cancelling_takes_the_second_one_with_it():
    m = SequenceModel(slots=1)
    m.link.begun = 0  # its worker sleeps still
    first = m.ask(1, START)
    m.ask(1)
    m.ask(2, START)
    assert m.link.ids() == [["1.0"], ["1.1"]]
    cancel(m.runtime, first)
    assert set(m.failures()) == {"1.0", "1.1"}
    assert m.link.ids() == [["2.0"]]


def test_a_cancelled_request_that_is_begun_is_marked_and_what_was_ahead_of_it_goes_again():
    m = SequenceModel(slots=1)
    running = m.ask(1, START)
    m.ask(1)
    cancel(m.runtime, running)
    assert (m.calls, m.link.ids()) == ([], [["1.0"], ["1.1"]])
    m.run()
    assert m.run() == [("1.1", 0)]


@both
def test_order_is_kept_by_whatever_is_taken_back(oldest):
    m = SequenceModel(slots=2, oldest=oldest)
    for flags in (START, 0, 0, END):
        m.ask(1, flags)
    gone = m.ask(2, START)
    cancel(m.runtime, gone)
    for _ in range(4):
        m.run()
    assert m.answered == ["1.0", "1.1", "1.2", "1.3"]


def test_an_end_that_is_taken_back_has_its_slot_again_and_who_had_it_waits():
    m = SequenceModel(slots=1)
    m.ask(1, START)
    m.run()
    m.ask(2, START)
    m.ask(1)
    end = m.ask(1, END)
    assert m.link.ids() == [["1.1"], ["1.2"]]
    assert sequences(m.runtime) == {2: ("m_0_0", 0)}
    other = m.ask(3, START)
    m.link.begun = 1
    cancel(m.runtime, other)  # nothing of it is at an instance
    assert m.link.ids() == [["1.1"], ["1.2"]]
    m.runtime.retire_link(m.link)
    assert m.link.ids() == [["1.1"], ["1.2"]]  # its state is there
    assert sequences(m.runtime) == {2: (None, -1)}
    m.run()
    m.run()
    assert end.done and m.answered == ["1.0", "1.1", "1.2"]


# ---- an instance that leaves, or dies


@both
def test_a_leaving_instance_keeps_what_it_has_begun_and_gives_the_new_sequences_away(oldest):
    m = SequenceModel(slots=3, oldest=oldest, max_batch_size=3)
    m.ask(1, START)
    m.run()
    m.ask(1)
    m.ask(2, START)
    m.ask(1)
    m.ask(3, START)
    m.runtime.retire_link(m.link)
    assert sequences(m.runtime) == {1: ("m_0_0", 0), 2: (None, -1), 3: (None, -1)}
    m.run()
    assert m.run() == [("1.2", 0)]
    m.ask(1, END)
    m.ask(4, START)
    assert m.run() == [("1.3", 0)]
    successor = type(m.link)("m_1_0", m.runtime, m.clock)
    m.runtime.add_link(successor)
    while successor.dispatched:
        successor.execute()
    assert m.answered == ["1.0", "1.1", "1.2", "1.3", "2.0", "3.0", "4.0"]


@both
def test_a_new_sequence_goes_to_no_leaving_instance(oldest):
    m = SequenceModel(slots=2, oldest=oldest, instances=2)
    m.runtime.retire_link(m.link)
    m.ask(1, START)
    m.ask(2, START)
    assert m.link.ids() == []
    assert {place[0] for place in sequences(m.runtime).values()} == {"m_0_1"}


def test_a_sequence_that_lost_its_slot_again_can_expire():
    m = SequenceModel(slots=1)
    m.ask(1, START)
    m.ask(1, END)
    m.ask(2, START, timeout_us=5000)
    assert sequences(m.runtime) == {2: ("m_0_0", 0)}
    m.runtime.retire_link(m.link)
    m.wait(6 * MS)
    assert m.failures() == {
        "2.0": (Status.UNAVAILABLE, "timeout of the corresponding sequence has been expired"),
    }


def test_what_came_while_its_sequence_had_a_slot_can_expire_when_another_one_has_it_again():
    m = SequenceModel(slots=2)
    m.link.slots = 3  # of its ring: what is taken back is not handed ahead again at once
    m.ask(1, START)
    third = m.ask(3, START | END)
    m.ask(1, END)
    m.ask(2, START)
    m.ask(2, timeout_us=5000)
    m.ask(4, START)
    assert m.link.ids() == [["1.0"], ["1.1", "3.0"]]
    cancel(m.runtime, third)
    assert sequences(m.runtime) == {2: (None, -1), 4: ("m_0_0", 1)}  # the first one's end has its slot again
    m.calls.clear()
    m.wait(6 * MS)
    assert {name: status for name, (status, _) in m.failures().items()} == dict.fromkeys(
        ("2.0", "2.1"), Status.UNAVAILABLE
    )


# ---- another instance is idle


def test_an_idle_instance_takes_a_new_sequence_that_was_handed_ahead():
    m = SequenceModel(slots=2, instances=2)
    m.ask(1, START)
    m.ask(2, START)  # on the other one
    m.ask(1)
    m.ask(3, START)
    assert ids(m) == [[["1.0"], ["1.1", "3.0"]], [["2.0"]]]
    m.links[1].execute()
    assert ids(m) == [[["1.0"]], [["3.0"]]]
    assert sequences(m.runtime) == {1: ("m_0_0", 0), 2: ("m_0_1", 0), 3: ("m_0_1", 1)}
    m.run()
    assert m.run() == [("1.1", 0)]


@both
def test_an_idle_instance_takes_a_single_request_that_was_handed_ahead(oldest):
    m = SequenceModel(slots=1, instances=2, oldest=oldest, max_batch_size=1)
    m.ask(1, START | END)
    m.ask(2, START | END)
    m.ask(3, START | END)
    m.links[1].execute()
    assert sorted(sum(sum(ids(m), []), [])) == ["1.0", "3.0"]
    assert m.links[1].ids() == [["3.0"]]


@both
def test_an_idle_instance_takes_a_new_sequence_that_waits_for_a_busy_one(oldest):
    m = SequenceModel(slots=4, instances=2, oldest=oldest)
    for each in (1, 2, 3):
        m.ask(each, START)
    assert ids(m) == [[["1.0"]], [["2.0"]]]
    m.links[1].execute()
    assert ids(m) == [[["1.0"]], [["3.0"]]]
    m.ask(3)
    m.links[1].execute()
    assert m.links[1].ids() == [["3.1"]]


@both
def test_a_new_sequence_begins_where_nothing_executes_whichever_slot_is_lower(oldest):
    m = SequenceModel(slots=8, instances=2, oldest=oldest)
    for each in (1, 2, 3, 4):
        m.ask(each, START)
    while m.links[1].dispatched:
        m.links[1].execute()
    m.ask(5, START)
    m.ask(6, START)
    assert m.links[1].ids() == [["5.0"]]
    m.links[1].execute()
    assert m.links[1].ids() == [["6.0"]]


@both
def test_what_has_begun_waits_for_its_instance(oldest):
    m = SequenceModel(slots=2, instances=2, oldest=oldest)
    m.ask(1, START)
    m.run()
    m.ask(1)
    m.ask(1)
    assert m.links[1].ids() == []
    m.ask(2, START)
    assert m.links[1].ids() == [["2.0"]]
    m.links[1].execute()
    assert m.links[1].ids() == []
    m.run()
    assert m.run() == [("1.2", 0)]


def test_new_sequences_are_shared_not_taken_over():
    m = SequenceModel(slots=8, instances=2)
    for each in range(1, 10):
        m.ask(each, START)
    while m.links[1].dispatched:
        m.links[1].execute()
    taken = [place[0] for place in sequences(m.runtime).values()]
    assert taken.count("m_0_0") >= 1 and len(m.answered) == 8
    assert m.link.ids() == [["1.0"]]


def test_nothing_moves_that_would_only_wait_elsewhere():
    m = SequenceModel(slots=2, instances=2)
    m.ask(1, START)
    m.ask(2, START)
    m.ask(1)
    m.ask(3, START)
    before = ids(m)
    m.ask(4, START)
    assert ids(m) == before
    assert sequences(m.runtime)[4] == ("m_0_1", 1)


@both
def test_a_new_sequence_does_not_wait_for_an_execution_that_hangs_though_the_others_are_busy(oldest):
    m = SequenceModel(slots=3, instances=2, oldest=oldest)
    for each in (1, 2, 3, 4):
        m.ask(each, START)
    m.wait(50 * MS)  # instance 0 hangs; the other one always has something to do
    for _ in range(4):
        m.ask(2)
        m.links[1].execute(took_ns=MS // 10)
    assert {"2.0", "3.0", "4.0"} <= set(m.answered)


def test_statistics_count_what_moved_once():
    m = SequenceModel(slots=2, instances=2)
    m.ask(1, START)
    m.ask(2, START)
    m.ask(1)
    m.ask(3, START)
    m.links[1].execute()
    m.links[1].execute()
    m.run()
    m.run()
    stats = m.runtime.stats
    assert (stats.inference_count, stats.execution_count) == (4, 4)
    assert (m.runtime.pending, m.runtime.inflight, m.runtime.queued) == (0, 0, 0)


# ---- decoupled, iterative


@both
def test_a_decoupled_model_s_new_sequence_goes_to_the_idle_instance(oldest):
    m = SequenceModel(slots=1, instances=2, oldest=oldest, max_batch_size=1, decoupled=True)
    m.ask(1, START | END)
    m.ask(2, START | END)
    m.ask(3, START | END)
    m.links[1].execute_streams()
    assert m.links[1].ids() == [["3.0"]]
    (third,) = m.links[1].execute_streams()
    m.links[1].respond(third, final=True)
    (first,) = m.link.execute_streams()
    m.link.respond(first, final=True)
    assert m.answered == ["3.0", "1.0"]


def test_an_iterative_request_that_is_ahead_can_be_cancelled():
    m = SequenceModel(slots=2, iterative=True)
    m.send("a")
    m.send("b")
    m.link.reschedule()
    assert m.link.ids() == [["a", "b"]]
    m.send("c")
    m.link.begun = 0
    (a,) = [r for r in m.link.dispatched[0] if r.input.id == "a"]
    cancel(m.runtime, a)
    assert m.calls[0][:2] == ("a", Status.CANCELLED)
    m.link.begun = 1
    while m.link.dispatched:
        m.run()
    assert sorted(m.answered) == ["b", "c"]


def test_an_idle_instance_gets_no_more_than_its_ring_has_room_for_beside_what_was_taken_back():
    m = SequenceModel(slots=2)
    m.link.slots, m.link.lags = 3, True
    m.ask(1, START)
    m.ask(1)
    cancel(m.runtime, m.ask(2, START))
    assert m.link.ghosts == 2
    m.ask(3, START)
    m.run()  # the batch of two finds a ring with one free slot
    assert m.link.ids() == []
    m.link.pass_over()
    assert m.link.ids() == [["1.1", "3.0"]]
