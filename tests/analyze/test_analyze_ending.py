"""What signals do to a search: what is waited for, what may be broken off, what is not."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tisfast.analyze import ending as module
from tisfast.analyze.ending import SIGNALS, Doing, Ending, Interrupted


def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def never():
    raise AssertionError("it was abandoned")


@pytest.fixture
def ending():
    made = Ending()
    with made.handled():
        yield made


def test_a_call_gives_its_value_or_its_error(ending):
    assert ending.wait_for(lambda: 5, never) == 5
    with pytest.raises(ZeroDivisionError):
        ending.wait_for(lambda: 1 // 0, never)


def test_a_call_that_has_failed_is_not_abandoned_though_its_thread_lives_for_a_moment(ending, monkeypatch):
    let_go = threading.Event()

    class Lingering(threading.Thread):
        def run(self):
            super().run()
            let_go.wait()

    monkeypatch.setattr(threading, "Thread", Lingering)
    try:
        with pytest.raises(ZeroDivisionError):
            ending.wait_for(lambda: 1 // 0, never)
    finally:
        let_go.set()


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_ends_what_is_waited_for(ending, number):
    let_go = threading.Event()

    def hangs():
        send(number)
        let_go.wait()

    with ending.section("more ends it", bears=1), pytest.raises(Interrupted):
        ending.wait_for(hangs, let_go.set)
    assert let_go.is_set()
    with pytest.raises(Interrupted):
        ending.wait_for(never, never)  # and nothing more is begun


def test_a_section_bears_signals_and_is_broken_off_once(ending, capsys):
    with pytest.raises(KeyboardInterrupt), ending.section("more ends it", bears=1):
        send()
        assert ending.stop.requested
        send(signal.SIGTERM)
        raise AssertionError("it went on")
    send()  # what is written then is written
    with ending.section("more ends this, too", bears=1):
        send()
    told = capsys.readouterr().err
    assert told.count("more ends it") == 1
    assert "What was measured is being written." in told
    assert "more ends this, too" in told


def test_handlers_are_given_back_and_nohup_holds():
    before = [signal.getsignal(each) for each in SIGNALS]
    hup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        made = Ending()
        with made.handled():
            send(signal.SIGHUP)
            assert not made.stop.requested
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, hup)
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_what_takes_long_is_told(monkeypatch):
    told, seen = [], threading.Event()
    monkeypatch.setattr(module, "LONG_SECONDS", 0.01)
    monkeypatch.setattr(module, "say", lambda text: told.append(text) or seen.set())
    with Doing("instances 2") as doing:
        doing("it is loaded")
        assert seen.wait(60)
    assert told[0] == "  instances 2: it is loaded; it has taken 0.01 s until now"
