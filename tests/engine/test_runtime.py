"""The scheduler of one model version, with a hand-moved clock: no sleeping, no processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.helpers import MS, Model
from tisfast.engine.testing import StreamSink, cancel, make_input, submit
from tisfast.limits import SUBMIT_SLOTS
from tisfast.types import Status


def test_default_scheduler_runs_each_request_alone_in_order():
    m = Model(dynamic=False)
    m.send("a", "b", "c")
    assert m.links[0].ids()[0] == ["a"]
    for _ in range(3):
        m.links[0].execute()
    assert m.answered == ["a", "b", "c"]
    assert m.runtime.stats.execution_count == 3


def test_an_idle_instance_gets_the_request_before_a_busy_one():
    m = Model(instances=2, dynamic=False)
    m.send("a", "b")
    assert [link.ids() for link in m.links] == [[["a"]], [["b"]]]


def test_prefetch_is_bounded_by_the_measured_execution_time():
    m = Model(dynamic=False)
    m.send("warm")
    m.links[0].execute(took_ns=10 * MS)
    m.send(*"abcdef")
    assert m.links[0].ids() == [["a"], ["b"]]
    assert m.runtime.queued == 4


def test_requests_that_queue_while_the_instance_is_busy_leave_together():
    m = Model()
    m.send(*"abcde")
    assert m.links[0].ids() == [["a"]]
    m.links[0].execute()
    assert m.links[0].ids() == [["b", "c", "d", "e"]]


def test_a_batch_never_exceeds_max_batch_size_nor_splits_a_request():
    m = Model(max_batch_size=8)
    m.send("first")
    m.send("a", batch=5)
    m.send("b", batch=4)
    m.send("c", batch=3)
    m.links[0].execute()
    assert m.links[0].ids()[0] == ["a"]
    m.links[0].execute()
    assert m.links[0].ids()[0] == ["b", "c"]


def test_a_full_batch_is_prefetched_to_a_busy_instance():
    m = Model(max_batch_size=2)
    m.send("first", "a", "b", "c")
    assert m.links[0].ids() == [["first"], ["a", "b"]]


def test_different_shapes_do_not_share_a_batch():
    m = Model()
    m.send("first")
    m.send("a", "b", shape_key=b"x")
    m.send("c", shape_key=b"y")
    m.links[0].execute()
    assert m.links[0].ids()[0] == ["a", "b"]


def test_delay_waits_for_a_preferred_size_then_sends_it_at_once():
    m = Model(preferred_batch_sizes=(4,), max_queue_delay_ns=5 * MS)
    m.send("a", "b", "c")
    assert m.links[0].ids() == []
    m.send("d")
    assert m.links[0].ids() == [["a", "b", "c", "d"]]


def test_delay_expires_by_timer():
    m = Model(max_queue_delay_ns=5 * MS)
    start = m.clock.now
    m.send("a", "b")
    assert m.due == start + 5 * MS
    m.wait(5 * MS)
    assert m.links[0].ids() == [["a", "b"]]


def test_queue_size_is_enforced_at_enqueue():
    m = Model(max_queue_size=2)
    m.send("run", "a", "b", "c")
    assert m.calls == [("c", Status.UNAVAILABLE, "[request id: c] Exceeds maximum queue size")]
    assert m.runtime.stats.rejected == 1


def test_timeout_fires_by_timer_while_the_instance_runs():
    m = Model(default_timeout_us=2000)
    m.send("run", "a")
    m.wait(3 * MS)
    assert m.calls == [("a", Status.UNAVAILABLE, "Request timeout expired")]


def test_timeout_fires_by_timer_after_requests_that_did_not_wait():
    m = Model(default_timeout_us=2000)
    for name in ("x", "y"):
        m.send(name)
        m.links[0].execute()
    m.send("run")
    m.wait(MS)
    m.send("a")
    m.wait(3 * MS)
    assert m.calls[2:] == [("a", Status.UNAVAILABLE, "Request timeout expired")]


def test_timeout_override_can_only_shorten():
    m = Model(default_timeout_us=2000, allow_timeout_override=True)
    m.send("run")
    m.send("short", timeout_us=500)
    m.send("long", timeout_us=9000)
    m.wait(int(1.6 * MS))
    assert [c[0] for c in m.calls] == ["short"]
    m.wait(2 * MS)
    assert [c[0] for c in m.calls] == ["short", "long"]


def test_override_without_a_default_does_nothing():
    m = Model(allow_timeout_override=True)
    m.send("run")
    m.send("a", timeout_us=1)
    m.wait(10 * MS)
    assert m.calls == []


def test_delayed_requests_go_last_instead_of_being_rejected():
    m = Model(max_batch_size=1, default_timeout_us=1000, timeout_action="DELAY")
    m.send("run", "late")
    m.wait(2 * MS)
    m.send("fresh")
    for _ in range(3):
        m.links[0].execute()
    assert m.answered == ["run", "fresh", "late"]


def test_preserve_ordering_holds_back_later_answers():
    m = Model(instances=2, max_batch_size=1, preserve_ordering=True)
    m.send("a", "b")
    m.links[1].execute()
    assert m.answered == []
    m.links[0].execute()
    assert m.answered == ["a", "b"]


def test_cancelling_a_queued_request_answers_it_and_never_runs_it():
    m = Model()
    _, b, _ = m.send("a", "b", "c")
    cancel(m.runtime, b)
    assert m.calls[0][:2] == ("b", Status.CANCELLED)
    m.links[0].execute()
    assert m.links[0].ids() == [["c"]]
    assert m.runtime.stats.canceled == 1


def test_a_death_fails_what_ran_and_requeues_the_rest_in_order():
    m = Model(max_batch_size=1, dynamic=False)
    m.send("a", "b", "c")
    m.links[0].die()
    assert m.calls == [("a", Status.UNAVAILABLE, "m_0_0 died")]
    m.links[0].revive()
    m.links[0].execute()
    m.links[0].execute()
    assert m.answered == ["b", "c"]


def test_refuse_answers_the_queue_and_all_that_follows_until_ready_again():
    m = Model()
    m.send("a", "b", "c")
    m.runtime.refuse("gone")
    m.send("d")
    assert [(i, s) for i, s, _ in m.calls] == [(i, Status.UNAVAILABLE) for i in "bcd"]
    m.runtime.set_state(True, "")
    m.send("e")
    m.links[0].execute()
    m.links[0].execute()
    assert m.answered == ["a", "e"]


def test_statistics_follow_triton():
    m = Model()
    m.send("a", batch=3)
    m.send("b", "c")
    m.links[0].execute()
    m.links[0].execute(status=Status.INTERNAL)
    stats = m.runtime.stats
    assert (stats.inference_count, stats.execution_count, stats.pending) == (3, 2, 0)
    assert stats.inference_stats()["success"]["count"] == stats.inference_stats()["queue"]["count"] == 1
    assert stats.inference_stats()["fail"]["count"] == stats.backend_failed == 2
    assert [entry["batch_size"] for entry in stats.batches()] == [2, 3]


@pytest.mark.parametrize("dynamic", [True, False])
def test_no_instance_up_queues(dynamic):
    m = Model(dynamic=dynamic)
    m.links[0].die()
    m.send("a")
    assert m.runtime.queued == 1
    m.links[0].revive()
    m.links[0].execute()
    assert m.answered == ["a"]


@pytest.mark.parametrize("max_batch", [300, 5000])
def test_a_batch_has_no_more_requests_than_a_ring_holds(max_batch):
    m = Model(max_batch_size=max_batch)
    m.send("first")
    m.send(*(str(i) for i in range(600)))
    m.links[0].execute()
    assert len(m.links[0].ids()[0]) == SUBMIT_SLOTS
    while m.links[0].dispatched:
        m.links[0].execute()
    assert len(m.answered) == 601


def test_a_decoupled_model_of_large_batches_is_given_work():
    m = Model(decoupled=True, max_batch_size=5000)
    m.send("a")
    assert m.links[0].ids() == [["a"]]


def test_the_timer_rests_while_no_instance_is_up_to_take_a_delayed_batch():
    m = Model(max_queue_delay_ns=5 * MS)
    m.send("a")
    m.links[0].die()
    m.wait(5 * MS)
    assert m.runtime.next_timer_ns() == 0
    m.links[0].revive()
    assert m.links[0].ids() == [["a"]]


def test_a_requeued_request_forgets_the_batch_that_it_was_in():
    m = Model(instances=2, max_batch_size=2)
    m.send("x", "y")
    m.send("a", "b", "c", "d")
    lost, other = m.links
    assert lost.ids() == [["x"], ["a", "b"]] and other.ids() == [["y"], ["c", "d"]]
    lost.die()
    while other.dispatched:
        other.execute()
    assert (other.batches, other.inflight) == (0, 0)
    assert m.runtime.stats.execution_count == 3


def test_submit_slots_are_those_of_the_ring():
    header = (Path(__file__).parents[2] / "csrc" / "tf_ring.h").read_text()
    assert f"#define TF_SUBMIT_SLOTS {SUBMIT_SLOTS}u" in header


def test_a_front_that_fails_does_not_cost_the_other_requests_their_answer():
    m = Model(max_batch_size=2)
    m.send("first")
    told = []

    def fail():
        raise RuntimeError("front")

    replies = [StreamSink(told, fail), StreamSink(told)]
    lost = [submit(m.runtime, make_input(m.signature, i), reply) for i, reply in zip("ab", replies, strict=True)]
    m.links[0].execute()
    with pytest.raises(RuntimeError, match="front"):
        m.runtime.fail(lost, Status.UNAVAILABLE, "died")
    assert [call[0] for call in told] == ["a", "b"]


def test_a_front_that_fails_does_not_hold_up_what_waits_behind_it():
    m = Model(instances=2, max_batch_size=1, preserve_ordering=True)
    told = []

    def fail():
        raise RuntimeError("front")

    for id, reply in (("a", StreamSink(told, fail)), ("b", StreamSink(told))):
        submit(m.runtime, make_input(m.signature, id), reply)
    m.links[1].execute()
    with pytest.raises(RuntimeError, match="front"):
        m.links[0].execute()
    m.send("c")
    m.links[0].execute()
    assert [call[0] for call in told] == ["a", "b"] and m.answered == ["c"]
