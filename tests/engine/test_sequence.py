"""The sequence batcher with a hand-moved clock."""
# ruff: noqa: E501 - one case, one line

from __future__ import annotations

import logging

import pytest

from tests.engine.helpers import MS
from tests.engine.sequence_helpers import END, START, SequenceModel
from tisfast.config.sequence_controls import ControlInput
from tisfast.engine.testing import cancel, sequences
from tisfast.types import BY_WIRE, Status

UINT64, BYTES = BY_WIRE["UINT64"].code, BY_WIRE["BYTES"].code


# ---- what is refused


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ({"correlation": 0, "flags": START}, "inference request to model 'm' must specify a non-zero or non-empty correlation ID"),
        ({"correlation": "", "flags": START}, "inference request to model 'm' must specify a non-zero or non-empty correlation ID"),
        ({"correlation": 7}, "inference request for sequence 7 to model 'm' must specify the START flag on the first request of the sequence"),
        ({"correlation": "x", "flags": END}, "inference request for sequence x to model 'm' must specify the START flag on the first request of the sequence"),
        ({"correlation": 7, "flags": START, "batch": 2}, "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"),
    ],
)  # fmt: skip
def test_a_request_that_is_of_no_sequence_is_refused_and_not_counted(what, text):
    m = SequenceModel()
    m.send("a", **what)
    assert m.calls == [("a", Status.INVALID_ARG, text)]
    assert m.runtime.stats.other_failed == 0


@pytest.mark.parametrize(
    ("dtype", "id", "given", "wanted"), [(UINT64, "x", "BYTES", "UINT64"), (BYTES, 7, "UINT64", "BYTES")]
)
def test_an_id_of_another_type_than_the_model_wants(dtype, id, given, wanted):
    m = SequenceModel(controls=(ControlInput("CORR", "CORRID", dtype),))
    m.send("a", correlation=id, flags=START)
    assert m.calls[0][1:] == (
        Status.INVALID_ARG,
        f"[request id: a] sequence batching control 'CORR' data-type is '{given}', but model 'm' expects '{wanted}'",
    )


def test_ids_of_both_types_where_the_model_does_not_ask():
    m = SequenceModel()
    m.ask(7, START)
    m.ask("7", START)
    assert set(sequences(m.runtime)) == {7, "7"}


# ---- direct


def test_a_sequence_keeps_its_place_in_the_batch():
    m = SequenceModel(slots=4)
    m.ask(1, START)  # executes alone; the others queue meanwhile
    for each in (2, 3, 1):
        m.ask(each, 0 if each == 1 else START)
    assert m.run() == [("1.0", 0)]
    assert m.run() == [("1.1", 0), ("2.0", 1), ("3.0", 2)]
    m.ask(3)
    assert m.run() == [("3.1", 2)]


def test_batch_statistics_count_the_filled_gaps():
    m = SequenceModel(slots=4)
    m.ask(1, START)
    m.ask(2, START)
    m.run()
    m.run()
    assert sorted(m.runtime.stats.batch_stats) == [1, 2]
    assert (m.runtime.stats.inference_count, m.runtime.stats.execution_count) == (2, 2)


def test_requests_of_one_sequence_are_executed_one_after_the_other():
    m = SequenceModel()
    for flags in (START, 0, END):
        m.ask(1, flags)
    assert [m.run(), m.run(), m.run()] == [[("1.0", 0)], [("1.1", 0)], [("1.2", 0)]]
    assert sequences(m.runtime) == {}


def test_the_next_batch_is_sent_ahead_only_when_it_is_full():
    m = SequenceModel(slots=2)
    m.ask(1, START)
    m.ask(1)
    assert m.link.ids() == [["1.0"]]
    m.ask(2, START)
    assert m.link.ids() == [["1.0"], ["1.1", "2.0"]]
    m.ask(1)
    m.ask(2)
    assert m.link.ids() == [["1.0"], ["1.1", "2.0"]], "two batches are at the instance"


def test_a_sequence_that_finds_no_slot_waits_in_the_backlog_and_first_come_is_first_served():
    m = SequenceModel(slots=1)
    for each in (1, 2, 3):
        m.ask(each, START)
    m.ask(2)
    assert sequences(m.runtime) == {1: ("m_0_0", 0), 3: (None, -1), 2: (None, -1)}
    m.run()
    m.ask(1, END)
    m.run()
    assert m.link.ids() == [["2.0"]] or m.link.ids() == [["2.0"], ["2.1"]]
    m.run()
    m.run()
    m.ask(2, END)
    m.run()
    assert m.run() == [("3.0", 0)]


def test_a_whole_sequence_in_the_backlog_leaves_room_for_another_of_its_id():
    m = SequenceModel(slots=1)
    m.ask(1, START)
    m.ask(2, START | END)
    m.ask(2, START)
    m.run()
    m.ask(1, END)
    for _ in range(3):
        m.run()
    assert m.answered == ["1.0", "1.1", "2.0", "2.1"]


def test_new_sequences_are_spread_over_the_instances():
    m = SequenceModel(slots=2, instances=2)
    for each in (1, 2, 3, 4):
        m.ask(each, START)
    assert sorted(sequences(m.runtime).values()) == [("m_0_0", 0), ("m_0_0", 1), ("m_0_1", 0), ("m_0_1", 1)]
    assert sequences(m.runtime)[1][1] == sequences(m.runtime)[2][1] == 0


def test_other_shapes_wait_for_the_next_batch():
    m = SequenceModel(slots=3)
    m.ask(1, START)
    m.ask(2, START, shape_key=b"y")
    m.ask(3, START, shape_key=b"x")
    m.ask(1, shape_key=b"x")
    m.run()
    assert m.run() == [("1.1", 0), ("3.0", 2)]
    assert m.run() == [("2.0", 1)]


def test_the_first_slot_s_shape_does_not_win_for_ever():
    m = SequenceModel(slots=2)
    m.ask(1, START, shape_key=b"x")
    m.ask(2, START, shape_key=b"y")
    executed = []
    for _ in range(4):
        m.wait(MS)
        m.ask(1, shape_key=b"x")  # has always something to do
        executed += m.run()
    assert ("2.0", 1) in executed


def test_a_batch_waits_for_its_slots_or_for_its_time():
    m = SequenceModel(slots=4, delay_ns=5 * MS, minimum_slot_utilization=0.5)
    m.ask(1, START)
    m.wait(4 * MS)
    assert m.link.ids() == []
    m.wait(MS)
    assert m.run() == [("1.0", 0)]
    m.ask(1)
    m.ask(2, START)
    assert m.run() == [("1.1", 0), ("2.0", 1)]


def test_without_a_batch_dimension_there_is_one_slot():
    m = SequenceModel(slots=1, max_batch_size=0)
    m.ask(1, START)
    m.ask(2, START)
    assert sequences(m.runtime) == {1: ("m_0_0", 0), 2: (None, -1)}


# ---- oldest


def test_one_request_of_each_candidate_at_a_time_in_the_order_of_their_coming():
    m = SequenceModel(slots=8, oldest=True, max_batch_size=4)
    m.ask(1, START)
    m.ask(1)
    m.ask(2, START)
    m.ask(3, START)
    m.ask(2)
    assert m.run() == [("1.0", 0)]
    assert m.run() == [("2.0", 1), ("3.0", 2), ("1.1", 0)]
    assert m.run() == [("2.1", 1)]


def test_candidates_beyond_the_most_wait():
    m = SequenceModel(slots=2, oldest=True, max_batch_size=4)
    for each in (1, 2, 3):
        m.ask(each, START)
    m.run()
    assert m.run() == [("2.0", 1)]
    m.ask(1, END)
    m.run()
    assert m.run() == [("3.0", 0)]


def test_preferred_sizes_are_waited_for():
    m = SequenceModel(slots=4, oldest=True, max_batch_size=4, preferred_batch_sizes=(3,), delay_ns=5 * MS)
    m.ask(1, START)
    m.ask(2, START)
    assert m.link.ids() == []
    m.ask(3, START)
    assert m.run() == [("1.0", 0), ("2.0", 1), ("3.0", 2)]
    m.ask(1)
    m.wait(5 * MS)
    assert m.run() == [("1.1", 0)]


# ---- the end of a sequence


def test_an_idle_sequence_gives_its_slot_back_and_must_start_again():
    m = SequenceModel(slots=1, idle_ns=10 * MS)
    m.ask(1, START)
    m.ask(2, START)
    m.run()
    m.wait(9 * MS)
    assert m.link.ids() == []
    m.wait(2 * MS)
    assert m.run() == [("2.0", 0)]
    m.ask(1)
    assert "must specify the START flag" in m.failures()["1.1"][1]


def test_a_sequence_that_is_being_answered_is_not_idle():
    m = SequenceModel(slots=1, idle_ns=10 * MS)
    m.ask(1, START)
    m.wait(50 * MS)
    m.run()
    m.ask(1)
    assert m.run() == [("1.1", 0)]


def test_nor_one_that_waits():
    m = SequenceModel(slots=1, idle_ns=10 * MS)
    m.ask(1, START)
    m.ask(2, START)
    m.wait(50 * MS)
    m.ask(2)
    m.run()
    m.wait(11 * MS)
    assert m.run() == [("2.0", 0)]


def test_a_sequence_that_starts_again_goes_on_where_it_was(caplog):
    m = SequenceModel()
    m.ask(1, START)
    with caplog.at_level(logging.WARNING):
        m.ask(1, START)
        m.ask(1, START)
    assert [m.run(), m.run(), m.run()] == [[("1.0", 0)], [("1.1", 0)], [("1.2", 0)]]
    assert len(caplog.messages) == 1
    assert "sequence 1 for model 'm' has a conflict" in caplog.messages[0]


def test_the_first_timeout_of_a_backlogged_sequence_ends_all_of_it():
    m = SequenceModel(slots=1)
    m.ask(1, START)
    m.ask(2, START, timeout_us=5000)
    m.ask(2)
    m.ask(3, START)
    m.wait(6 * MS)
    expired = (Status.UNAVAILABLE, "timeout of the corresponding sequence has been expired")
    assert m.failures() == {"2.0": expired, "2.1": expired}
    assert m.runtime.stats.rejected == 2
    m.run()
    m.ask(1, END)
    m.run()
    assert m.run() == [("3.0", 0)]


def test_once_it_has_a_slot_no_timeout_counts():
    m = SequenceModel(slots=1)
    m.ask(1, START)
    m.ask(1, timeout_us=5000)
    m.wait(50 * MS)
    m.run()
    assert m.run() == [("1.1", 0)]


def test_a_cancelled_request_ends_its_sequence_and_frees_the_slot():
    m = SequenceModel(slots=1)
    m.ask(1, START)
    m.ask(1)  # sent ahead
    m.ask(1)
    taken_back = m.ask(1)
    m.ask(1)
    m.ask(2, START)
    cancel(m.runtime, taken_back)
    assert {name: status for name, (status, _) in m.failures().items()} == {
        "1.3": Status.CANCELLED,
        "1.4": Status.CANCELLED,
    }
    assert [m.run(), m.run(), m.run(), m.run()] == [[("1.0", 0)], [("1.1", 0)], [("1.2", 0)], [("2.0", 0)]]
    m.ask(1)
    assert "START flag" in m.failures()["1.5"][1]


@pytest.mark.parametrize("oldest", [False, True])
def test_a_cancelled_sequence_in_the_backlog_is_gone(oldest):
    m = SequenceModel(slots=1, oldest=oldest)
    m.ask(1, START)
    cancel(m.runtime, m.ask(2, START))
    m.ask(3, START)
    m.run()
    m.ask(1, END)
    m.run()
    assert m.run() == [("3.0", 0)]


def test_a_cancelled_request_of_a_candidate_ends_its_sequence():
    m = SequenceModel(slots=2, oldest=True, max_batch_size=2)
    m.ask(1, START)
    taken_back = m.ask(2, START)  # issued, not sent
    m.ask(2)
    m.ask(3, START)
    cancel(m.runtime, taken_back)
    assert set(m.failures()) == {"2.0", "2.1"}
    m.run()
    assert m.run() == [("3.0", 1)]


def test_a_running_request_that_is_cancelled_and_not_executed_ends_its_sequence():
    m = SequenceModel(slots=1)
    running = m.ask(1, START)
    m.ask(1)
    m.ask(1)
    cancel(m.runtime, running)
    m.run(status=Status.CANCELLED)
    assert m.failures()["1.2"][0] == Status.CANCELLED
    assert sequences(m.runtime) == {}


def test_one_that_is_executed_all_the_same_does_not():
    m = SequenceModel(slots=1)
    running = m.ask(1, START)
    cancel(m.runtime, running)
    m.run()
    assert sequences(m.runtime) == {1: ("m_0_0", 0)}


def test_a_failed_request_does_not_end_its_sequence():
    m = SequenceModel(slots=1)
    m.ask(1, START)
    m.run(status=Status.INTERNAL)
    m.ask(1)
    assert m.run() == [("1.1", 0)]


# ---- instances that die


def test_a_sequence_dies_with_its_instance_and_can_begin_anew():
    m = SequenceModel(slots=2)
    m.ask(1, START)
    m.run()
    m.link.die()
    m.ask(1)
    status, text = m.failures()["1.1"]
    assert status == Status.UNAVAILABLE
    assert "sequence 1 of model 'm' is lost: instance m_0_0" in text
    m.link.revive()
    m.ask(1)
    assert "is lost" in m.failures()["1.2"][1]
    m.ask(1, START)
    assert m.run() == [("1.3", 0)]


def test_what_waited_for_the_dead_instance_is_told_so():
    m = SequenceModel(slots=1)
    for flags in (START, 0, 0, 0):
        m.ask(1, flags)
    m.run()
    m.link.die()
    assert {name: status for name, (status, _) in m.failures().items()} == dict.fromkeys(
        ("1.1", "1.2", "1.3"), Status.UNAVAILABLE
    )
    assert m.runtime.queued == 0


def test_a_sequence_of_which_nothing_was_taken_begins_on_another_instance():
    m = SequenceModel(slots=1, instances=2)
    m.ask(1, START)
    m.ask(1)
    m.ask(2, START)
    m.ask(3, START)
    m.link.die(taken=0)
    assert m.failures() == {}
    m.link.revive()
    assert m.run() == [("1.0", 0)]
    assert m.run() == [("1.1", 0)]


@pytest.mark.parametrize("oldest", [False, True])
def test_a_sequence_that_only_waited_for_its_instance_goes_to_another(oldest):
    m = SequenceModel(slots=2, instances=2, oldest=oldest, max_batch_size=2)
    m.ask(1, START | END)
    m.ask(2, START | END)
    m.ask(3, START)
    m.link.die()
    m.links[1].execute()
    assert m.links[1].ids() == [["3.0"]] or "3.0" in m.answered


@pytest.mark.parametrize("oldest", [False, True])
def test_a_single_request_that_was_not_taken_is_executed_elsewhere(oldest):
    m = SequenceModel(slots=1, instances=2, oldest=oldest)
    m.ask(1, START | END)
    m.link.die(taken=0)
    assert m.links[1].ids() == [["1.0"]]


def test_sequences_on_other_instances_go_on():
    m = SequenceModel(slots=1, instances=2)
    m.ask(1, START)
    m.ask(2, START)
    m.link.die()
    m.links[1].execute()
    m.ask(2, END)
    m.links[1].execute()
    assert m.answered == ["2.0", "2.1"]


def test_refusing_everything_empties_the_queue_and_keeps_the_sequences():
    m = SequenceModel(slots=1)
    for flags in (START, 0, 0):
        m.ask(1, flags)
    m.ask(2, START)
    m.runtime.refuse("down")
    assert set(m.failures()) == {"1.2", "2.0"}
    assert set(sequences(m.runtime)) == {1}


# ---- decoupled


def test_the_next_request_of_a_stream_goes_when_the_last_was_executed_not_when_it_is_answered():
    m = SequenceModel(slots=2, oldest=True, decoupled=True)
    m.ask(1, START)
    m.ask(1)
    assert m.link.ids() == [["1.0"]]
    (first,) = m.link.execute_streams()
    assert m.link.ids() == [["1.1"]]
    m.link.respond(first, final=True)
    (second,) = m.link.execute_streams()
    m.link.respond(second, final=True)
    assert m.answered == ["1.0", "1.1"]


# ---- iterative


def test_an_iterative_request_needs_no_id_and_comes_back_until_it_is_answered():
    m = SequenceModel(slots=2, iterative=True)
    m.send("a")
    m.link.reschedule()
    m.link.reschedule()
    assert m.run() == [("a", 0)]
    assert m.answered == ["a"]
    assert sequences(m.runtime) == {}
    assert (m.runtime.stats.execution_count, m.runtime.stats.inference_count) == (3, 3)


def test_iterative_requests_share_batches():
    m = SequenceModel(slots=2, iterative=True)
    m.send("a")
    m.send("b")
    m.link.reschedule()
    assert m.run() == [("a", 0), ("b", 1)]


@pytest.mark.parametrize("oldest", [False, True])
@pytest.mark.parametrize("rounds", [0, 1])
def test_an_iterative_request_that_comes_back_as_its_instance_dies_is_told_so(oldest, rounds):
    m = SequenceModel(slots=2, iterative=True, oldest=oldest)
    m.send("a")
    for _ in range(rounds):
        m.link.reschedule()
    m.runtime.remove_link(m.link)
    m.link.reschedule()  # it lay in the ring when the worker died
    m.runtime.on_timer()
    assert m.runtime.queued == 0
    [(status, message)] = m.failures().values()
    assert status == Status.UNAVAILABLE and "is lost: instance m_0_0" in message


def test_a_test_may_hold_sequences_back_until_so_many_requests_have_slots_and_wait_behind_them():
    m = SequenceModel(slots=2, hold=(2, 1))
    m.ask(1, START)
    m.ask(2, START)
    assert m.link.ids() == []
    m.ask(3, START)
    assert m.link.ids() == [["1.0", "2.0"]]
