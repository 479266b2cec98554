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


def test_ctrl_c_while_handlers_are_put_back_takes_no_other_signal_s(heard, monkeypatch):
    """A program that lives on, as a notebook does, hears what comes later."""
    before, put = {each: signal.getsignal(each) for each in SIGNALS}, signal.signal

    def interrupted(number, handler):
        put(number, handler)
        if handler is before[signal.SIGINT]:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(signal, "signal", interrupted)
    with pytest.raises(KeyboardInterrupt), held_signals():
        pass
    assert {each: signal.getsignal(each) for each in SIGNALS} == before
