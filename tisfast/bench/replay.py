"""Captured traffic in a file: which request went when, to which model, with what.  Layer 5 (bench)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from tisfast import limits
from tisfast.bench.inputs import FILE_BYTES_MAX, STEPS_MAX, TIMESTAMP, timestamp_of
from tisfast.bench.json_file import parsed
from tisfast.bench.tensor_data import Place
from tisfast.errors import BadRequest

FLAG: Final = "--replay"
FORM: Final = '{"timestamp": 12.5, "model": "a", "inputs": {"INPUT": [1, 2]}}'
PAYLOAD_FORM: Final = '{"timestamp": 12.5, "payload": {"messages": [...]}}'
MODEL: Final = "model"
VERSION: Final = "version"
INPUTS: Final = "inputs"
PARAMETERS: Final = "parameters"


@dataclass(frozen=True)
class Line:
    """One request.  at_ms: when it went; place: in the file, for errors."""

    place: Place
    at_ms: float
    entry: Mapping[str, Any]

    def model(self, default: str) -> str:
        """Its name.  Raises BadRequest."""
        found = self.entry.get(MODEL, default)
        if not isinstance(found, str) or not found:
            raise self.place.at(MODEL).wrong(f"is {json.dumps(found)[:40]}", "name the model there, or all with -m")
        return found

    def version(self, default: str) -> str:
        """Of the model; "" for the server's choice.  Raises BadRequest."""
        found = self.entry.get(VERSION, default)
        if isinstance(found, bool) or not isinstance(found, int | str):
            raise self.place.at(VERSION).wrong(f"is {json.dumps(found)[:40]}", "write a number, or leave it out")
        return str(found)

    def step(self) -> dict[str, Any]:
        """Its inputs and parameters as a step of input data; inputs may also be a list as in KServe's protocol."""
        strange = sorted(set(self.entry) - {TIMESTAMP, MODEL, VERSION, INPUTS, PARAMETERS})
        if strange:
            raise self.place.at(strange[0]).wrong("is not known", f"the form of a line is {FORM}")
        here, inputs = self.place.at(INPUTS), self.entry.get(INPUTS)
        if isinstance(inputs, list):
            try:
                inputs = {each["name"]: {"content": each["data"], "shape": each["shape"]} for each in inputs}
            except (KeyError, TypeError):
                raise here.wrong(
                    "is a list that KServe's protocol does not have", 'each entry has "name", "shape" and "data"'
                ) from None
        if not isinstance(inputs, dict):
            raise here.wrong(f"is {json.dumps(inputs)[:40]}", f"the form of a line is {FORM}")
        parameters = {PARAMETERS: self.entry[PARAMETERS]} if PARAMETERS in self.entry else {}
        return {**inputs, **parameters}


def read_lines(path: str, form: str, speed: float = 1.0) -> Iterator[Line]:
    """Each line that is not empty, in the order of the file.  Raises BadRequest, also where they lie too far apart."""
    ends: list[Line] = []
    found = 0
    for number, text in _texts(path, form):
        if text.isspace():
            continue
        found += 1
        if found > STEPS_MAX:
            raise BadRequest(f"{FLAG} {path}: it has more than {STEPS_MAX} requests: cut it in two")
        line = _line(Place(path, f"line {number}", FLAG), text, form)
        ends = _ends([*ends, line], line, speed)
        yield line
    if not found:
        raise BadRequest(f"{FLAG} {path}: it has no requests; write lines {form}")


def _texts(path: str, form: str) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, as long as all together are not too many bytes."""
    left = FILE_BYTES_MAX
    try:
        with Path(path).open("rb") as file:
            for number in count(1):
                text = file.readline(left + 1)
                if not text:
                    return
                left -= len(text)
                if left < 0:
                    raise BadRequest(f"{FLAG} {path}: the file has more than {FILE_BYTES_MAX} bytes: cut it in two")
                yield number, text
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        reason = getattr(error, "strerror", None) or error
        raise BadRequest(f"{FLAG} {path}: it cannot be read ({reason}); name a file of lines {form}") from None


def _ends(lines: list[Line], last: Line, speed: float) -> list[Line]:
    """The earliest and the latest one.  Raises BadRequest, in the name of the last, when the latest comes too late."""
    first, latest = min(lines, key=_when), max(lines, key=_when)
    seconds, most = (latest.at_ms - first.at_ms) / speed / 1000, limits.BENCH_SCHEDULE_SECONDS_MAX
    if not seconds <= most:
        other = latest if last is first else first
        raise last.place.at(TIMESTAMP).wrong(
            f"is {last.at_ms:.15g}, and that of {other.place.key} {other.at_ms:.15g}",
            f"at --replay-speed {speed:g} that is a replay of {seconds:.4g} s, and one has {most:g} s at most: write "
            "milliseconds, cut the file, or raise the speed",
        )
    return [first, latest]


def _when(line: Line) -> float:
    return line.at_ms


def _line(place: Place, text: bytes, form: str) -> Line:
    try:
        entry = parsed(text)
    except ValueError as error:
        raise place.wrong(f"is no JSON ({error})", f"the form of a line is {form}") from None
    if not isinstance(entry, dict):
        raise place.wrong("is no JSON object", f"the form of a line is {form}")
    at_ms = timestamp_of(place, entry)
    if at_ms is None:
        raise place.at(TIMESTAMP).wrong("is missing", f"the form of a line is {form}")
    return Line(place, at_ms, entry)


def from_start(times_ms: Sequence[float], speed: float) -> list[float]:
    """From the first request on, so many times as fast; ms."""
    first = min(times_ms)
    return [(each - first) / speed for each in times_ms]
