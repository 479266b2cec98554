"""What an instance hears of the server, whatever its system lacks."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from tisfast_worker.control import ControlSocket
from tisfast_worker.control_messages import ControlMessages


def test_readiness_that_gets_no_thread_is_answered_and_the_next_one_is_asked(monkeypatch):
    messages, sent, answered = ControlMessages(), [], threading.Event()

    def send(message):
        sent.append(message)
        answered.set()

    def none(_):
        raise RuntimeError("can't start new thread")

    messages.send = send
    messages.check_readiness_with(lambda: "")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none)
        assert messages.hear({"t": "is_ready", "n": 1})
    reason = "it could not be asked: can't start new thread"
    assert sent == [{"t": "readiness", "n": 1, "reason": reason}]
    answered.clear()
    assert messages.hear({"t": "is_ready", "n": 2}) and answered.wait(60)
    assert sent[1:] == [{"t": "readiness", "n": 2, "reason": ""}]


def test_only_the_server_s_end_is_taken_for_that(tmp_path):
    """A TimeoutError that a model raises in this thread is an OSError, too: whose end it is has to be told."""
    with socket.socket(socket.AF_UNIX) as listens:
        listens.bind(str(tmp_path / "control"))
        listens.listen()
        control = ControlSocket(f"ipc://{tmp_path / 'control'}")
        peer, _ = listens.accept()
    with peer:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, control.fileno())
        os.close(null)
        with pytest.raises(OSError, match="non-socket"):
            control.receive()
    control.close()
