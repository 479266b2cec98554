"""Signals that are blocked while a process is started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tisfast.end_signals import END_SIGNALS, blocked_signals


class Told(Exception):
    """What a handler of this program raises."""


@pytest.fixture
def raises():
    """SIGTERM's handler raises Told."""

    def tell(*_):
        raise Told

    before = signal.signal(signal.SIGTERM, tell)
    yield
    signal.signal(signal.SIGTERM, before)


def mask():
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_what_comes_meanwhile_is_obeyed_at_the_end(raises):
    before, reached = mask(), []
    with pytest.raises(Told), blocked_signals():
        signal.raise_signal(signal.SIGTERM)
        reached.append(mask() - before)
    assert reached == [END_SIGNALS - before]
    assert mask() == before


def test_a_handler_that_raises_as_they_are_blocked_leaves_none_blocked(raises, monkeypatch):
    before, block = mask(), signal.pthread_sigmask

    def late(how, numbers):
        found = block(how, numbers)
        if numbers == END_SIGNALS:
            raise Told
        return found

    monkeypatch.setattr(signal, "pthread_sigmask", late)
    with pytest.raises(Told), blocked_signals():
        pass
    monkeypatch.undo()
    assert mask() == before


def test_what_is_started_meanwhile_has_them_blocked_until_it_says_otherwise():
    told = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))); "
    program = f"{told}from tisfast.end_signals import unblock_end_signals; unblock_end_signals(); {told}"
    with blocked_signals():
        started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    first, second = started.communicate()[0].splitlines()
    assert first == str(sorted(END_SIGNALS)) and second == "[]"
