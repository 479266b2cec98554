"""Decoupled models in the engine, with a hand-moved clock: executions and open requests are counted by themselves."""

from __future__ import annotations

import pytest

from tests.engine.helpers import MS, Model
from tisfast.engine.testing import StreamSink, cancel, make_input, submit
from tisfast.limits import OUTSTANDING_REQUESTS_MAX, RESPONSE_STATS_MAX
from tisfast.types import Status


class Streams(Model):
    """Requests' calls as (id, status, final)."""

    def __init__(self, instances=1, **changes):
        super().__init__(instances, decoupled=True, **{"dynamic": False, **changes})

    def send(self, *ids, **what):
        return [submit(self.runtime, make_input(self.signature, i, **what), StreamSink(self.calls)) for i in ids]

    @property
    def told(self):
        return [(id, status, final) for id, status, _, final in self.calls]


def test_any_number_of_answers_and_one_final():
    m = Streams()
    (a,) = m.send("a")
    link = m.links[0]
    link.respond(a)
    link.execute_streams()
    link.respond(a, status=Status.INTERNAL)
    assert not a.done and m.runtime.inflight == 1
    link.respond(a, final=True)
    assert m.told == [("a", 0, False), ("a", Status.INTERNAL, False), ("a", 0, True)]
    assert a.done and m.runtime.inflight == 0 and link.inflight == 0


def test_the_next_batch_goes_when_execute_has_returned_though_requests_are_open():
    m = Streams(dynamic=True, max_batch_size=4)
    m.send("a", "b", "c")
    link = m.links[0]
    assert link.ids() == [["a"]]
    link.execute_streams()
    assert link.ids() == [["b", "c"]] and link.inflight == 3
    assert m.runtime.stats.execution_count == 1


def test_an_instance_that_executes_nothing_is_preferred_to_one_with_fewer_streams():
    m = Streams(instances=2, max_queue_size=9)
    first, second = m.links
    m.send("a")
    first.execute_streams()
    m.send("b", "c")
    assert (first.ids(), second.ids()) == ([["c"]], [["b"]])


def test_open_requests_are_bounded():
    m = Streams(max_batch_size=0)
    link = m.links[0]
    requests = m.send(*(f"r{i}" for i in range(OUTSTANDING_REQUESTS_MAX + 2)))
    while link.dispatched:
        link.execute_streams()
    assert (link.inflight, m.runtime.queued) == (OUTSTANDING_REQUESTS_MAX, 2)
    link.respond(requests[0], final=True)
    assert m.runtime.queued == 1


def test_cancelling_marks_a_running_request_and_it_goes_on():
    m = Streams()
    (a,) = m.send("a")
    cancel(m.runtime, a)
    assert a.cancelled and not a.done
    m.links[0].respond(a, status=Status.CANCELLED, final=True)
    assert m.told == [("a", Status.CANCELLED, True)] and m.runtime.stats.canceled == 1


def test_a_cancelled_request_that_comes_back_from_a_dead_instance_is_not_sent_again():
    m = Streams(max_batch_size=1)
    m.send("a")
    m.links[0].execute_streams(took_ns=10)
    b, c, d = m.send("b", "c", "d")
    m.links[0].begun = 2  # the worker had claimed c when it was cancelled, and died before it took it
    cancel(m.runtime, c)
    m.links[0].die()
    m.links[0].revive()
    assert m.told == [("a", 5, True), ("b", 5, True), ("c", Status.CANCELLED, True)]
    assert m.links[0].ids() == [["d"]]


def test_a_death_ends_all_streams_with_one_final_each():
    m = Streams()
    (a,) = m.send("a")
    m.links[0].respond(a)
    m.links[0].execute_streams()
    m.send("b")
    m.links[0].die()
    assert m.told == [("a", 0, False), ("a", Status.UNAVAILABLE, True), ("b", Status.UNAVAILABLE, True)]


def test_preserve_ordering_tells_one_stream_after_the_other():
    m = Streams(instances=2, dynamic=True, max_batch_size=1, preserve_ordering=True)
    a, b = m.send("a", "b")
    m.links[1].respond(b)
    m.links[0].respond(a)
    m.links[1].respond(b, final=True)
    assert m.told == [("a", 0, False)]
    m.links[0].respond(a, final=True)
    (c,) = m.send("c")
    assert m.told == [("a", 0, False), ("a", 0, True), ("b", 0, False), ("b", 0, True)]
    m.links[0].respond(c)
    assert m.told[-1] == ("c", 0, False)


def test_requests_are_counted_at_their_final_answer_and_responses_by_position():
    m = Streams()
    a, b = m.send("a", "b")
    link = m.links[0]
    for took in (3, 4):
        link.respond(a, took_ns=took * MS)
    link.respond(a, took_ns=5 * MS, final=True)
    link.execute_streams()
    link.execute_streams()
    link.respond(b, status=Status.INTERNAL)
    link.respond(b, status=Status.CANCELLED, final=True)
    stats = m.runtime.stats
    found = stats.response_stats()
    assert list(found) == ["0", "1", "2"]
    assert found["0"]["success"] == {"count": 1, "ns": 3 * MS}
    assert found["1"]["success"] == {"count": 1, "ns": 4 * MS}
    assert found["2"]["empty_response"] == {"count": 1, "ns": 5 * MS}
    assert found["0"]["fail"]["count"] == 1 and found["1"]["cancel"]["count"] == 1
    assert (stats.inference_count, stats.execution_count, stats.canceled) == (1, 2, 1)


def test_positions_are_listed_up_to_a_bound():
    m = Streams()
    (a,) = m.send("a")
    for _ in range(RESPONSE_STATS_MAX + 3):
        m.links[0].respond(a)
    assert len(m.runtime.stats.responses) == RESPONSE_STATS_MAX


@pytest.mark.parametrize("status", [0, Status.INTERNAL])
def test_nothing_is_told_after_the_final_answer_of_a_refused_request(status):
    m = Streams()
    m.runtime.refuse("gone")
    (a,) = m.send("a")
    cancel(m.runtime, a)
    assert m.told == [("a", Status.UNAVAILABLE, True)]
