"""What is counted of generated tokens in a stretch of time, and the answers that an export wants.  Layer 5 (bench)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tisfast import limits
from tisfast.bench.histogram import Histogram

HISTOGRAMS: Final = ("first_token", "inter_token", "gap")
COUNTS: Final = ("requests", "streams", "output", "input", "told", "guessed", "contents_bytes", "contents_missed")


class Kept(NamedTuple):
    """One answer.  Times in ns of CLOCK_MONOTONIC; step: of the input data; contents: an event each, or the body."""

    sent_ns: int
    step: int
    times_ns: tuple[int, ...]
    contents: tuple[bytes, ...]


@dataclass
class Tokens:
    """Of answers that ended well within the time.

    first_token: from the intended time of sending to the first event with content; inter_token: a request's average
    time from one output token to the next; gap: from one event with content to the next, each.  requests: all; streams:
    those that came as events; output, input: tokens; told: requests whose output tokens the server told (usage);
    guessed: requests whose events were counted instead.  kept: up to contents_max bytes; contents_missed: answers that
    found no room there.
    """

    contents_max: int = 0
    first_token: Histogram = field(default_factory=Histogram)
    inter_token: Histogram = field(default_factory=Histogram)
    gap: Histogram = field(default_factory=Histogram)
    requests: int = 0
    streams: int = 0
    output: int = 0
    input: int = 0
    told: int = 0
    guessed: int = 0
    contents_bytes: int = 0
    contents_missed: int = 0
    kept: list[Kept] = field(default_factory=list)

    def keep(self, answer: Kept) -> None:
        """For the export."""
        if not self.contents_max:
            return
        nbytes = sum(map(len, answer.contents)) + limits.BENCH_EVENT_OVERHEAD_BYTES * len(answer.contents)
        if self.contents_bytes + nbytes > self.contents_max:
            self.contents_missed += 1
            return
        self.contents_bytes += nbytes
        self.kept.append(answer)

    def merge(self, other: Tokens) -> None:
        """Of the time behind."""
        for name in HISTOGRAMS:
            getattr(self, name).merge(getattr(other, name))
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kept += other.kept
