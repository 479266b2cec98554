"""Custom batching strategies: what they decide, and what they may be written in."""

from __future__ import annotations

import struct

import pytest

from tests.engine.helpers import Model
from tisfast.engine.batching_strategy import Candidate, compile_strategy
from tisfast.engine.testing import FakeSink, place_input, submit
from tisfast.errors import ConfigError

VOLUME = '''
"""At most so many elements in a batch."""
MOST = 8

def begin(request):
    return request.shapes["I"][-1]

def include(total, request):
    total += request.shapes["I"][-1]
    if total > MOST:
        return None
    return total
'''


def send(m, id, elements):
    data = struct.pack(f"<{elements}f", *range(elements))
    request = place_input(m.runtime, id, [(0, 11, (1, elements), data)])
    return submit(m.runtime, request, FakeSink(m.calls))


def batches(text, *elements, failed=None):
    strategy = compile_strategy(text, "s.py")
    strategy.failed = failed
    m = Model(strategy=strategy)
    send(m, "run", 1)
    for number, count in enumerate(elements):
        send(m, str(number), count)
    told = []
    while m.links[0].dispatched:
        told += m.links[0].ids()[:1]
        m.links[0].execute()
    return told[1:]


def test_a_strategy_closes_batches():
    assert batches(VOLUME, 3, 3, 3, 5, 8, 1) == [["0", "1"], ["2", "3"], ["4"], ["5"]]


def test_without_begin_the_value_is_the_size_of_the_first():
    text = "def include(n, request):\n    return n + request.size if n < 2 else None"
    assert batches(text, 1, 1, 1) == [["0", "1"], ["2"]]


def test_what_a_strategy_raises_is_told_and_closes_the_batch():
    told = []
    assert batches("def include(n, request):\n    return n + request.shapes['X'][0]", 1, 1, failed=told.append) == [
        ["0"],
        ["1"],
    ]
    assert {type(error) for error in told} == {KeyError}


def test_the_facts_of_a_request():
    strategy = compile_strategy(
        "def begin(request):\n    return (request.size, request.nbytes, request.priority)\n"
        "def include(batch, request):\n    return batch if batch == (2, 24, 1) and len(request.shapes) == 1 else None",
        "s.py",
    )
    facts = Candidate(2, 24, {"I": (2, 3)}, 1)
    strategy.start(facts)
    assert strategy.takes(facts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os", "s.py:1: batching strategy: 'import os' is not allowed here"),
        ("def include(a, r):\n    while 1:\n        pass", "s.py:2: batching strategy: 'while 1:' is not allowed"),
        ("def include(a, r):\n    return [x for x in a]", "s.py:2: batching strategy: '[x for x in a]' is not allowed"),
        ("def include(a, r):\n    return a ** 9", "'a ** 9' is not allowed"),
        ("def include(a, r):\n    a <<= 9", "'a <<= 9' is not allowed"),
        ("def include(a, r):\n    return open('x')", "\"open('x')\" is not allowed".replace('"', "'")),
        ("def include(a, r):\n    return r.__class__", "'r.__class__' is not allowed"),
        ("def include(a, r):\n    return include(a, r)", "'include(a, r)' is not allowed"),
        ("def include(a, r):\n    return (lambda: 1)()", "is not allowed"),
        ("def include(a, r=1):\n    return a", "is not allowed"),
        ("def include(a):\n    return a", "'include' with 1 arguments is not asked for"),
        ("def other(a):\n    return a", "'other' with 1 arguments is not asked for"),
        ("X = 1", "there is no function 'include(batch, request)'"),
        ("def include(a, r)\n    return a", "s.py:1: batching strategy: expected ':'"),
        ("X = " + "1 + " * 1000 + "1\ndef include(a, r):\n    return a", "more than 1000 operations"),
    ],
)
def test_what_could_wait_loop_or_reach_out_is_refused(text, said):
    with pytest.raises(ConfigError) as caught:
        compile_strategy(text, "s.py")
    assert said in str(caught.value)
