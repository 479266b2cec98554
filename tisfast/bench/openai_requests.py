"""Requests to OpenAI's endpoints: bodies of --input-data or one of our own.  Layer 5 (bench)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tisfast.bench.asked import Asked, Replay
from tisfast.bench.http_load import HttpTemplate
from tisfast.bench.inputs import STEPS_MAX, TIMESTAMP, all_timestamps, read_streams, timestamp_of
from tisfast.bench.openai_answers import Answer
from tisfast.bench.replay import PAYLOAD_FORM, from_start, read_lines
from tisfast.bench.tensor_data import Place
from tisfast.errors import BadRequest
from tisfast.wire.client_head import RequestHead

PROMPT: Final = "Write a long story about a lighthouse keeper who finds a letter in a bottle."
"""Of 15 words, where the user gives none."""
OUTPUT_TOKENS: Final = 64
"""That are asked for with it."""
FORM: Final = '{"data": [{"payload": {"model": ..., "messages": [...]}}, ...]}'
SESSIONS: Final = ("session_id", "delay")
PAYLOAD: Final = "payload"


@dataclass(frozen=True)
class Bodies:
    """JSON texts, one for each step, and when each is sent (ms), where the steps say it."""

    texts: list[bytes]
    timestamps: list[float | None]

    def in_order(self) -> Bodies:
        """By their times.  Raises BadRequest for a step that has none."""
        times = all_timestamps(self.timestamps)
        order = sorted(range(len(times)), key=times.__getitem__)
        return Bodies([self.texts[at] for at in order], [times[at] for at in order])


def read_bodies(asked: Asked) -> Bodies:
    """Of the files of --input-data; without files one of our own.  Raises BadRequest."""
    paths = asked.data.files
    if asked.replay is not None:
        return _replayed(asked.replay, asked)
    if not paths:
        return Bodies([_rendered(_own(asked))], [None])
    found = Bodies([], [])
    for path in paths:
        for number, stream in enumerate(read_streams(Path(path), FORM)):
            for at, step in enumerate(stream):
                place = Place(path, f"data[{number}][{at}]")
                found.texts.append(_rendered(_completed(_payload(place, step), asked)))
                found.timestamps.append(timestamp_of(place, step))
    if len(found.texts) > STEPS_MAX:
        raise BadRequest(f"--input-data has {len(found.texts)} steps, and at most {STEPS_MAX} are read: leave some out")
    return found


def _replayed(replay: Replay, asked: Asked) -> Bodies:
    texts, times = [], []
    for line in read_lines(replay.path, PAYLOAD_FORM, replay.speed):
        texts.append(_rendered(_completed(_payload(line.place, line.entry), asked)))
        times.append(line.at_ms)
    return Bodies(texts, list(from_start(times, replay.speed)))


def templates(bodies: Bodies, asked: Asked) -> list[HttpTemplate]:
    """Each is sent as it is.  Raises BadRequest for an endpoint or a header that cannot be."""
    target = f"{asked.address.path}/{asked.endpoint.strip('/')}"
    named = {name.lower() for name, _ in asked.headers}
    headers = [("Content-Type", "application/json")] if "content-type" not in named else []
    head = RequestHead("POST", target, asked.address.authority, [*headers, *asked.headers])
    answering = partial(Answer, keep=asked.records)
    return [HttpTemplate(head, head.with_body(len(text)) + text, answering=answering) for text in bodies.texts]


def _payload(place: Place, step: Mapping[str, Any]) -> dict[str, Any]:
    for key in step:
        if key in SESSIONS:
            raise place.at(key).wrong("belongs to a conversation", "conversations are not played; leave it out")
        if key not in (PAYLOAD, TIMESTAMP):
            raise place.at(key).wrong("is not known", f"the form is {FORM}")
    found = step.get(PAYLOAD)
    if isinstance(found, list) and len(found) == 1:  # as GenAI-Perf writes it
        found = found[0]
    if not isinstance(found, dict):
        raise place.at(PAYLOAD).wrong(f"is {json.dumps(found)[:40]}", f"write the body of the request; {FORM}")
    return found


def _completed(payload: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """With the model, and with --streaming its key, where the user has not written them."""
    added: dict[str, Any] = {"model": asked.model} if "model" not in payload else {}
    if asked.settings.streaming and "stream" not in payload:
        added["stream"] = True
    return {**added, **payload}


def _own(asked: Asked) -> dict[str, Any]:
    last = asked.endpoint.strip("/").rpartition("/")[2]
    if last == "embeddings":
        return {"model": asked.model, "input": PROMPT}
    if last != "completions":
        raise BadRequest(
            f"--endpoint {asked.endpoint}: its requests have a form that is not known; give them with --input-data "
            f"FILE, whose form is {FORM}"
        )
    body: dict[str, Any] = {"model": asked.model}
    if asked.endpoint.strip("/").endswith("chat/completions"):
        body["messages"] = [{"role": "user", "content": PROMPT}]
    else:
        body["prompt"] = PROMPT
    body["max_tokens"] = OUTPUT_TOKENS
    if asked.settings.streaming:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _rendered(payload: Mapping[str, Any]) -> bytes:
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
