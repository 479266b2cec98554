"""What an instance hears of the server, whatever its system lacks."""

from __future__ import annotations

import threading

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
