"""Answers of OpenAI's endpoints, read as they arrive: what was generated, when, and what is wrong.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import orjson

from tisfast import limits
from tisfast.bench.event_stream import Event, EventStream
from tisfast.bench.tokens import Kept, Tokens
from tisfast.errors import BadResponse

DONE: Final = b"[DONE]"
OK: Final = 200
EVENT_STREAM: Final = "text/event-stream"


class Answer:
    """One answer: its `head`, its pieces (`take`), its `end`.  keep: its contents are wanted, with the time of each."""

    def __init__(self, step: int, *, keep: bool) -> None:
        self._step, self._keep = step, keep
        self._status = 0
        self._events: EventStream | None = None  # None: the body is one JSON text
        self._pieces: list[bytes] = []
        self._nbytes = 0
        self._content_ns: list[int] = []  # of each event with content
        self._times_ns: list[int] = []
        self._last_ns = 0
        self._contents: list[bytes] = []
        self._usage: Mapping[str, Any] = {}
        self._wrong, self._done = "", False

    def head(self, status: int, content_type: str) -> None:
        """Of an interim response it is called, too."""
        self._status = status
        self._events = EventStream() if status == OK and content_type == EVENT_STREAM else None

    def take(self, piece: bytes, now: int) -> int:
        """A piece of the body, which was received then.  Gives the number of events with content until now.

        Raises BadResponse for what is not read any further; its connection is lost by that.
        """
        self._last_ns = now
        if self._events is not None:
            for event in self._events.feed(piece):
                self._event(event, now)
            return len(self._content_ns)
        self._nbytes += len(piece)
        if self._nbytes > limits.BENCH_ANSWER_BYTES_MAX:
            raise BadResponse(f"an answer has more than {limits.BENCH_ANSWER_BYTES_MAX} bytes")
        self._pieces.append(piece)
        return 0

    def end(self, intended_ns: int, sent_ns: int, tokens: Tokens) -> str:
        """It is whole.  Gives what is wrong, or "" when it was counted in `tokens`."""
        if self._events is None:
            self._whole()
        else:
            for event in self._events.end():
                self._event(event, self._last_ns)
            if not self._done and not self._wrong:
                self._wrong = "the stream ended without data: [DONE]"
        if not self._wrong:
            self._count(intended_ns, tokens)
            if self._keep:
                tokens.keep(Kept(sent_ns, self._step, tuple(self._times_ns), tuple(self._contents)))
        return self._wrong

    def _event(self, event: Event, now: int) -> None:
        if self._keep:
            self._times_ns.append(now)
            self._contents.append(event.text + b"\n\n")
        if event.data == DONE:
            self._done = True
            return
        try:
            found = orjson.loads(event.data)
        except orjson.JSONDecodeError as error:
            self._wrong = self._wrong or f"an event of the stream is no JSON ({error}): {event.data!r:.100}"
            return
        if not isinstance(found, dict):
            self._wrong = self._wrong or f"an event of the stream is no JSON object: {event.data!r:.100}"
            return
        self._wrong = self._wrong or _error(found)
        if any(map(_has_content, _list(found.get("choices")))):
            self._content_ns.append(now)
        self._read_usage(found)

    def _whole(self) -> None:
        """The body is one JSON text, or something else that is told as it is."""
        body = b"".join(self._pieces)
        self._contents, self._times_ns = [body], [self._last_ns]
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            found = None
        error = _error(found) if isinstance(found, dict) else ""
        if self._status != OK:
            text = body[: limits.CLIENT_ERROR_CHARS_MAX].decode("utf-8", "replace").strip()
            self._wrong = error or text or f"HTTP status {self._status}"
        elif not isinstance(found, dict):
            self._wrong = f"the answer is no JSON object: {body!r:.100}"
        else:
            self._wrong = error
            self._read_usage(found)

    def _read_usage(self, found: Mapping[str, Any]) -> None:
        usage = found.get("usage")
        if isinstance(usage, dict):
            self._usage = usage  # some servers tell it with each event, growing: the last one counts

    def _count(self, intended_ns: int, tokens: Tokens) -> None:
        told = _number(self._usage.get("completion_tokens"))
        events = self._content_ns
        output = len(events) if told is None else told
        tokens.requests += 1
        tokens.output += output
        tokens.input += _number(self._usage.get("prompt_tokens")) or 0
        tokens.told += told is not None
        tokens.guessed += told is None and self._events is not None
        if self._events is None:
            return
        tokens.streams += 1
        if not events:
            return
        tokens.first_token.record(events[0] - intended_ns)
        for before, after in pairwise(events):
            tokens.gap.record(after - before)
        if min(output, len(events)) > 1:
            tokens.inter_token.record((events[-1] - events[0]) // (output - 1))


def _has_content(choice: Any) -> bool:
    """Text, reasoning, a refusal or a call of a tool; not the role alone."""
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(value for name, value in delta.items() if name != "role")
    return bool(choice.get("text"))


def _error(found: Mapping[str, Any]) -> str:
    """The text of an `error`, which is an object with a `message`, or a text; "" where there is none."""
    error = found.get("error")
    if error is None and found.get("object") == "error":  # of some servers the whole is the error
        error = found
    if not error:
        return ""
    text = error.get("message") if isinstance(error, dict) else error
    return str(text or error)[: limits.CLIENT_ERROR_CHARS_MAX]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
