"""What was handed ahead to a busy instance, and not begun, goes where it can be executed."""

from __future__ import annotations

import pytest

from tests.engine.helpers import MS, Model
from tisfast.engine.testing import cancel
from tisfast.types import Status


def ids(m):
    return [link.ids() for link in m.links]


def test_an_idle_instance_takes_what_waits_behind_a_busy_one():
    m = Model(instances=2, dynamic=False)
    m.send("a", "b", "c", "d")
    assert ids(m) == [[["a"], ["c"]], [["b"], ["d"]]]
    m.links[1].execute()
    m.links[1].execute()
    assert ids(m) == [[["a"]], [["c"]]]
    assert m.answered == ["b", "d"]


def test_what_has_waited_longest_goes_first_whichever_instance_has_it():
    m = Model(instances=3, dynamic=False)
    for id in "abcdef":
        m.clock.now += 1
        m.send(id)
    assert ids(m) == [[["a"], ["d"]], [["b"], ["e"]], [["c"], ["f"]]]
    m.links[2].execute()
    m.links[2].execute()  # is idle: d is the oldest, then e is handed ahead again, behind whatever has least
    assert ids(m)[2][0] == ["d"]
    assert sorted(sum(ids(m), [])) == [["a"], ["b"], ["d"], ["e"]]


def test_a_batch_that_was_handed_ahead_is_formed_anew():
    m = Model(instances=2, max_batch_size=4)
    m.send("a", "b")
    m.send(*"cdef")
    m.send(*"gh")
    assert ids(m) == [[["a"], list("cdef")], [["b"]]]
    m.links[1].execute()
    assert ids(m) == [[["a"]], [list("cdef")]]
    assert m.runtime.queued == 2
    m.links[0].execute()
    assert ids(m) == [[["g", "h"]], [list("cdef")]]


def test_a_decoupled_model_takes_back_what_its_busy_instance_has_not_begun():
    m = Model(instances=2, decoupled=True, dynamic=False, max_batch_size=0)
    m.send("a", "b", "c")
    assert ids(m) == [[["a"], ["c"]], [["b"]]]
    m.links[1].execute_streams()
    assert ids(m) == [[["a"]], [["c"]]]
    assert (m.links[0].batches, m.links[1].batches) == (1, 1)


def test_an_instance_that_becomes_ready_takes_what_waits_behind_the_others():
    m = Model(instances=2, dynamic=False)
    m.links[1].die()
    m.send("a", "b")
    assert ids(m) == [[["a"], ["b"]], []]
    m.links[1].revive()
    assert ids(m) == [[["a"]], [["b"]]]


def test_what_an_instance_has_begun_stays():
    m = Model(instances=2, dynamic=False)
    m.send("a", "b", "c")
    m.links[0].begun = 2  # the worker was quicker
    m.links[1].execute()
    assert ids(m) == [[["a"], ["c"]], []]
    assert m.links[0].inflight == 2


def test_a_cancelled_request_that_is_not_begun_is_answered_at_once():
    m = Model(dynamic=False)
    _, b, _ = m.send("a", "b", "c")
    cancel(m.runtime, b)
    assert m.calls == [("b", Status.CANCELLED, "Request cancelled: the client left the queue")]
    assert ids(m) == [[["a"], ["c"]]]
    assert (m.runtime.stats.canceled, m.runtime.inflight, m.links[0].inflight) == (1, 2, 2)


def test_a_cancelled_request_leaves_its_batch_to_the_others():
    m = Model(max_batch_size=2)
    m.send("a")
    b, _, _ = m.send("b", "c", "d")
    assert ids(m) == [[["a"], ["b", "c"]]]
    cancel(m.runtime, b)
    assert ids(m) == [[["a"], ["c", "d"]]]


def test_a_cancelled_request_that_is_begun_is_only_marked():
    m = Model(dynamic=False)
    (a,) = m.send("a")
    cancel(m.runtime, a)
    assert (m.calls, ids(m)) == ([], [[["a"]]])


def test_a_retired_instance_leaves_to_the_others_what_it_has_not_begun():
    m = Model(instances=2, dynamic=False)
    m.send("a", "b", "c", "d")
    m.runtime.retire_link(m.links[0])
    assert ids(m) == [[["a"]], [["b"], ["c"]]]
    assert (m.runtime.queued, m.runtime.pending) == (1, 2)
    m.links[1].execute()
    assert ids(m) == [[["a"]], [["c"], ["d"]]]


def test_the_pending_count_has_what_was_handed_ahead():
    m = Model(dynamic=False)
    m.send("warm")
    m.links[0].execute(took_ns=10 * MS)
    m.send(*"abcde")
    counts = []
    for _ in range(5):
        counts.append(m.runtime.pending)
        m.links[0].execute(took_ns=10 * MS)
    assert counts == [4, 3, 2, 1, 0]


def test_statistics_count_a_request_that_moved_once():
    m = Model(instances=2, dynamic=False)
    m.send("a", "b", "c")
    m.links[1].execute()
    m.links[1].execute()
    m.links[0].execute()
    stats = m.runtime.stats
    assert (stats.inference_count, stats.execution_count, m.runtime.pending, m.runtime.inflight) == (3, 3, 0, 0)


def test_a_death_after_a_move_loses_only_what_was_begun():
    m = Model(instances=2, dynamic=False)
    m.send("a", "b", "c")
    m.links[1].execute()
    assert ids(m) == [[["a"]], [["c"]]]
    m.links[1].die()
    m.links[0].execute()
    assert m.calls == [("b", 0, None), ("c", 5, "m_0_1 died"), ("a", 0, None)]


# ---- preserve_ordering


def refused(m):
    return [id for id, status, _ in m.calls if status == Status.UNAVAILABLE]


def test_what_is_refused_does_not_wait_for_the_answers_before_it():
    m = Model(max_batch_size=1, preserve_ordering=True, max_queue_size=2)
    m.send(*"abcde")
    assert refused(m) == ["d", "e"]
    m.send("f")
    assert refused(m) == ["d", "e", "f"]
    for _ in range(3):
        m.links[0].execute()
    m.send("g")
    m.links[0].execute()
    assert m.answered == ["a", "b", "c", "g"]


def test_answers_behind_a_refused_request_keep_their_order():
    m = Model(instances=3, max_batch_size=1, preserve_ordering=True, max_queue_size=1)
    m.send(*"abcde")
    assert refused(m) == ["e"]
    m.links[1].execute()
    m.links[2].execute()
    assert m.answered == []
    m.send("f")
    m.links[0].execute()
    assert m.answered[:3] == ["a", "b", "c"]


def test_a_model_that_refuses_everything_does_so_at_once():
    m = Model(max_batch_size=1, preserve_ordering=True)
    m.send("a")
    m.runtime.refuse("unloaded")
    m.send("b")
    assert m.calls == [("b", Status.UNAVAILABLE, "unloaded")]
    m.links[0].execute()
    assert m.answered == ["a"]


# ---- the largest preferred size


@pytest.mark.parametrize(
    ("preferred", "rows", "first"),
    [
        ((2, 6), (3, 4), [["r0"]]),
        ((4,), (2, 3), [["r0"]]),
        ((2, 6), (3, 3), [["r0", "r1"]]),
        ((), (5, 3), [["r0", "r1"]]),
    ],
)
def test_a_request_that_would_outgrow_the_largest_preferred_size_begins_the_next_batch(preferred, rows, first):
    m = Model(max_batch_size=8, preferred_batch_sizes=preferred, max_queue_delay_ns=100 * MS)
    for i, batch in enumerate(rows):
        m.send(f"r{i}", batch=batch)
    assert m.links[0].ids() == first


def test_an_overdue_batch_takes_all_that_fits():
    m = Model(max_batch_size=8, preferred_batch_sizes=(2, 6), max_queue_delay_ns=10 * MS)
    m.send("busy", batch=2)
    m.send("a", batch=3)
    m.clock.now += 20 * MS
    m.send("b", batch=4)
    m.links[0].execute()
    assert m.links[0].ids() == [["a", "b"]]


# ---- Triton's test hooks


def test_a_held_scheduler_hands_out_nothing_before_so_many_wait_and_then_works_as_ever():
    m = Model(max_batch_size=4, hold_requests=3)
    m.send("a", "b")
    assert (ids(m), m.runtime.queued) == ([[]], 2)
    m.send("c")
    assert ids(m) == [[["a", "b", "c"]]]
    m.links[0].execute()
    m.send("d")
    assert ids(m) == [[["d"]]]
