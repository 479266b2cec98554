"""Priority levels and their queue policies, with a hand-moved clock."""

from __future__ import annotations

import pytest

from tests.engine.helpers import MS, Model
from tisfast.config.scheduler_settings import QueuePolicy
from tisfast.engine.testing import cancel
from tisfast.types import Status

LATE = QueuePolicy(default_timeout_us=1000, timeout_action="DELAY")
FULL = (Status.UNAVAILABLE, "Exceeds maximum queue size")
EXPIRED = (Status.UNAVAILABLE, "Request timeout expired")


def busy(levels=3, default=2, **changes):
    """A model whose instance executes; what is sent waits."""
    m = Model(priority_levels=levels, default_priority_level=default, **changes)
    m.send("run")
    return m


def send(m, **priorities):
    for id, priority in priorities.items():
        m.send(id, priority=priority)


def executed(m, batches=9):
    """Ids batch by batch, in the order of execution."""
    told = []
    for _ in range(batches):
        told += m.links[0].ids()[:1]
        if m.links[0].dispatched:
            m.links[0].execute()
    return told[1:]


def failures(m):
    return {id: (status, text.split("] ")[-1]) for id, status, text in m.calls if status}


def test_lower_numbers_go_first_and_equal_ones_in_order():
    m = busy(max_batch_size=1)
    send(m, a2=2, b3=3, c1=1, d2=2, e1=1)
    assert executed(m) == [["c1"], ["e1"], ["a2"], ["d2"], ["b3"]]


@pytest.mark.parametrize("priority", [0, 4, 2**64 - 1])
def test_what_is_no_level_means_the_default_one(priority):
    m = busy(max_batch_size=1)
    m.send("a3", priority=3)
    m.send("x", priority=priority)
    m.send("b2", priority=2)
    assert executed(m) == [["x"], ["b2"], ["a3"]]


def test_a_batch_is_filled_over_all_levels():
    m = busy(max_batch_size=4)
    send(m, a3=3, b2=2, c1=1, d1=1, e1=1)
    assert executed(m) == [["c1", "d1", "e1", "b2"], ["a3"]]


def test_without_batches_levels_hold_as_well():
    m = busy(max_batch_size=0)
    send(m, a3=3, b1=1)
    assert executed(m) == [["b1"], ["a3"]]


def test_nothing_is_prefetched_where_somebody_more_urgent_may_come():
    m = busy(max_batch_size=2)
    send(m, a3=3, b3=3, c1=1)
    assert executed(m) == [["c1", "a3"], ["b3"]]


def test_a_level_has_a_bound_of_its_own():
    m = busy(priority_policies=((1, QueuePolicy(max_queue_size=1)),))
    send(m, a1=1, b1=1, c2=2, d2=2)
    assert failures(m) == {"b1": FULL}
    assert executed(m) == [["a1", "c2", "d2"]]


def test_levels_share_the_bound_of_the_default_policy_each():
    m = busy(max_queue_size=1)
    send(m, a1=1, b2=2, c3=3, d3=3)
    assert failures(m) == {"d3": FULL}


def test_a_level_has_a_timeout_of_its_own_which_may_be_shortened():
    own = QueuePolicy(default_timeout_us=2000, allow_timeout_override=True)
    m = busy(priority_policies=((1, own),))
    m.send("a1", priority=1)
    m.send("b1", priority=1, timeout_us=500)
    m.send("c2", timeout_us=1)
    m.send("d1", priority=1, timeout_us=900_000)
    m.wait(int(1.6 * MS))
    assert failures(m) == {"b1": EXPIRED}
    m.wait(MS)
    assert failures(m) == dict.fromkeys(("a1", "b1", "d1"), EXPIRED)
    assert executed(m) == [["c2"]]
    assert m.runtime.stats.rejected == 3


def test_the_delayed_of_a_level_go_before_the_next_level():
    m = busy(max_batch_size=1, priority_policies=((1, LATE), (2, LATE)))
    send(m, late2=2, late1=1)
    m.wait(2 * MS)
    send(m, fresh2=2, fresh1=1)
    assert executed(m) == [["fresh1"], ["late1"], ["fresh2"], ["late2"]]


def test_the_delayed_fill_a_batch_up():
    m = Model(max_batch_size=3, default_timeout_us=1000, timeout_action="DELAY")
    m.send("run", "late", "later")
    m.wait(2 * MS)
    m.send("fresh")
    assert executed(m) == [["fresh", "late", "later"]]


def test_a_delayed_request_that_a_dead_instance_never_took_is_still_late():
    m = Model(instances=2, max_batch_size=1, default_timeout_us=1000, timeout_action="DELAY")
    m.send("run", "other", "late")
    m.wait(2 * MS)
    m.links[1].execute()
    assert m.links[1].ids() == [["late"]]
    m.send("fresh")
    m.links[1].dispatched.insert(0, [])  # it had taken nothing
    m.links[1].die()
    m.links[1].revive()
    m.links[1].execute()
    assert m.answered[1:] == ["fresh"] and m.links[1].ids() == [["late"]]


def test_there_may_be_any_number_of_levels():
    m = busy(levels=2**32 - 1, default=7, max_batch_size=1, priority_policies=((2**32 - 1, LATE),))
    send(m, last=2**32 - 1, default=0, first=1)
    assert executed(m) == [["first"], ["default"], ["last"]]


def test_a_request_leaves_its_level_when_its_client_leaves():
    m = busy(max_batch_size=1)
    (a,) = m.send("a1", priority=1)
    m.send("b2")
    cancel(m.runtime, a)
    assert executed(m) == [["b2"]]
    assert failures(m)["a1"][0] == Status.CANCELLED


def test_refusal_empties_every_level():
    m = busy()
    send(m, a1=1, b2=2, c3=3)
    m.runtime.refuse("gone")
    assert set(failures(m)) == {"a1", "b2", "c3"}
    assert (m.runtime.queued, m.runtime.stats.pending) == (0, 0)


def test_the_delay_counts_from_the_oldest_of_any_level():
    m = Model(priority_levels=2, default_priority_level=2, max_queue_delay_ns=5 * MS)
    m.send("a2", priority=2)
    m.wait(3 * MS)
    m.send("b1", priority=1)
    m.wait(2 * MS - 1)
    assert m.links[0].ids() == []
    m.wait(1)
    assert m.links[0].ids() == [["b1", "a2"]]


def test_a_batch_that_cannot_grow_does_not_wait_for_its_delay():
    m = Model(max_queue_delay_ns=5 * MS)
    m.send("a", shape_key=b"x")
    m.send("b", shape_key=b"y")
    assert m.links[0].ids() == [["a"]]
