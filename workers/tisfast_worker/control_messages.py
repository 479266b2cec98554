"""Messages of one instance with the server beside requests: records, questions, readiness (WIRE.md, 6).

Whatever carries the messages calls `hear`, and is told what to carry by `send` and `post`.
"""

import itertools
import threading

from tisfast_worker import limits
from tisfast_worker.serving_context import current, enter


class ControlClosed(Exception):  # noqa: N818 - an end, not a mistake
    """The server closed the control socket, or died, or did not answer in time.

    number: of the question that has no answer; 0 without one.
    """

    number = 0


def _always_ready():
    return ""


class _Question:
    """A question to the server, for whose answer a thread waits."""

    __slots__ = ("answer", "answered")

    def __init__(self):
        self.answer = None
        self.answered = threading.Event()


class ControlMessages:
    """The server as the runtime around a model sees it."""

    def __init__(self):
        """Nothing is asked yet."""
        self.serving = None  # the ServingContext of its instance, where there may be others in this process
        self._is_ready = _always_ready
        self._asked = {}  # number: _Question, of those that wait for the server
        self._numbers = itertools.count(1)

    def send(self, message):
        """Queue a message that must not be dropped; those are few and bounded by the protocol.  From any thread."""
        raise NotImplementedError

    def post(self, message):
        """Queue a record, which is counted and dropped when too many wait.  Never blocks."""
        raise NotImplementedError

    def ask(self, message, seconds=limits.ANSWER_SECONDS_MAX):
        """Send a question and wait for its answer, bounded.  From any thread but the one that hears.

        Raises ControlClosed when none comes in time.
        """
        number, question = next(self._numbers), _Question()
        self._asked[number] = question
        try:
            self.send(dict(message, n=number))
            if not question.answered.wait(seconds):
                error = ControlClosed(f"the server did not answer within {seconds} s")
                error.number = number
                raise error
        finally:
            del self._asked[number]
        return question.answer

    def check_readiness_with(self, is_ready):
        """`is_ready()` says why the model is not ready, or ""; each call in a thread of its own, one at a time."""
        self._is_ready = is_ready

    def log(self, level, text, file, line, once=None):
        """Queue a log record.  once: what names it, where all instances of the model shall log it once."""
        if len(text) > limits.CONTROL_TEXT_CHARS_MAX:
            text = f"{text[: limits.CONTROL_TEXT_CHARS_MAX]} ... (cut from {len(text)} characters)"
        record = {"t": "log", "level": level, "msg": text, "file": file, "line": line}
        self.post(record if once is None else dict(record, once=once))

    def hear(self, message):
        """A message of the server's.  False for one that is not about what is said here."""
        kind = message.get("t")
        if kind == "is_ready":
            self._check_readiness(message.get("n", 0))
        elif kind == "answer":
            question = self._asked.get(message.get("n"))
            if question is not None:  # else nobody waits any more
                question.answer = message
                question.answered.set()
        elif kind == "verbose":
            (self.serving or current()).verbose = message.get("level", 0) > 0
        else:
            return False
        return True

    def _check_readiness(self, number):
        def check():
            enter(self.serving)
            self.send({"t": "readiness", "n": number, "reason": self._is_ready()})

        try:
            threading.Thread(target=check, name="tisfast-is-ready", daemon=True).start()
        except RuntimeError as error:  # the system's limit of threads is reached, and this one must go on
            self.send({"t": "readiness", "n": number, "reason": f"it could not be asked: {error}"})
