"""Signals that wait until what must be whole is written."""

from __future__ import annotations

import signal

import pytest

from tisfast.convert.held_signals import SIGNALS, held_signals


@pytest.fixture
def heard():
    """What comes to this program's own handlers of SIGTERM and SIGHUP."""
    numbers = []
    others = {each: signal.signal(each, lambda number, _: numbers.append(number)) for each in SIGNALS[1:]}
    yield numbers
    for each, handler in others.items():
        signal.signal(each, handler)


def test_each_that_came_is_obeyed_once_at_the_end(heard):
    with held_signals():
        for each in 2 * (signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(each)
        assert heard == []
    assert heard == [signal.SIGHUP, signal.SIGTERM]


class Told(Exception):
    """What a handler of this program raises."""


@pytest.mark.parametrize("number", SIGNALS)
def test_one_that_is_told_as_handlers_are_put_back_takes_nothing_of_the_others(heard, monkeypatch, number):
    """A program that lives on, as a notebook does, hears what came and what comes later."""

    def tell(*_):
        raise Told

    own, put = signal.signal(number, tell), signal.signal
    before = {each: signal.getsignal(each) for each in SIGNALS}
    others = [each for each in SIGNALS[1:] if each != number]

    def interrupted(which, handler):
        put(which, handler)
        if handler is tell:
            signal.raise_signal(number)

    try:
        with monkeypatch.context() as patched, pytest.raises(Told), held_signals():
            for each in others:
                signal.raise_signal(each)
            patched.setattr(signal, "signal", interrupted)
        assert {each: signal.getsignal(each) for each in SIGNALS} == before
        assert sorted(heard) == sorted(others)
    finally:
        signal.signal(number, own)
