"""An instance that becomes idle waits a little for the clients whose answers have just left."""

from __future__ import annotations

from tests.engine.helpers import MS, Model
from tisfast.tuning import BATCH_REJOIN_NS_MAX, BATCH_REJOIN_VAIN_MAX

LONG = 4 * MS
WINDOW = LONG // 8


def busy_model(took_ns=LONG, **changes):
    """Four requests execute together, four others wait."""
    m = Model(**changes)
    m.send("warm")
    m.send(*"abcd")
    execute(m, took_ns)
    m.send(*"efgh")
    return m


def execute(m, took_ns=LONG):
    m.links[0].execute(took_ns=took_ns)


def test_those_who_ask_again_at_once_join_those_who_waited():
    m = busy_model()
    execute(m)
    assert m.links[0].ids() == []
    m.send(*"abc")
    assert m.links[0].ids() == []
    m.send("d")
    assert m.links[0].ids() == [[*"efghabcd"]]


def test_a_full_batch_does_not_wait():
    m = busy_model(max_batch_size=4)
    execute(m)
    assert m.links[0].ids() == [[*"efgh"]]


def test_the_wait_ends_after_an_eighth_of_an_execution():
    m = busy_model()
    execute(m)
    m.send("a")
    m.wait(WINDOW - 1)
    assert m.links[0].ids() == []
    m.wait(1)
    assert m.links[0].ids() == [[*"efgha"]]


def test_the_wait_is_bounded_for_long_executions():
    m = busy_model(1000 * MS)
    execute(m, 1000 * MS)
    m.wait(BATCH_REJOIN_NS_MAX - 1)
    assert m.links[0].ids() == []
    m.wait(1)
    assert m.links[0].ids() == [[*"efgh"]]


def test_short_executions_wait_for_nobody():
    m = Model()
    m.send("warm")
    m.send(*"abcd")
    execute(m, MS // 10)
    m.send(*"efgh")
    execute(m, MS // 10)
    assert m.links[0].ids() == [[*"efgh"]]


def test_one_client_alone_is_served_at_once():
    m = Model()
    for _ in range(3):
        m.send("a")
        execute(m)
    m.send("a")
    assert m.links[0].ids() == [["a"]]


def test_a_request_that_comes_later_does_not_wait():
    m = busy_model()
    execute(m)
    m.wait(WINDOW)
    execute(m)
    m.wait(WINDOW)
    m.send("later")
    assert m.links[0].ids() == [["later"]]


def waits(m):
    """Whether the next idle moment with work waiting is waited through."""
    execute(m)
    waited = m.links[0].ids() == []
    m.wait(WINDOW)
    m.send(*"abcd")
    return waited


def test_what_is_in_vain_is_given_up_until_it_would_pay():
    m = busy_model()
    assert [waits(m) for _ in range(BATCH_REJOIN_VAIN_MAX + 2)] == [True] * BATCH_REJOIN_VAIN_MAX + [False] * 2
    execute(m)
    m.send(*"efgh")  # as many as were answered, in time: it would have paid
    assert waits(m)
