"""What was counted of a level, window by window, and the measurement that it makes.  Layer 5 (bench).

Memory is bounded whatever the level takes: windows that can no longer be the result are forgotten with their records,
and pieces of time are joined in pairs when there are too many.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tisfast import limits
from tisfast.bench.client_side import Clocks, Counted, cost
from tisfast.bench.histogram import Histogram
from tisfast.bench.loop import Tally
from tisfast.bench.mixture import Mixture
from tisfast.bench.results import ClientCost, Errors, Level, Measurement, Records, ServerSplit, Usage, Window
from tisfast.bench.server_gpus import gpus_together
from tisfast.bench.tokens import Tokens

COMPARED: Final = 3
"""Windows that must agree, and that are the result, as perf_analyzer has it."""
NUMBERS: Final = (
    "requests", "completed", "failed", "responses", "sequences", "delayed", "sent_bytes", "received_bytes",
    "send_ns", "receive_ns", "idle_ns", "gil_ns",
)  # fmt: skip
"""Of a tally: what is added up."""
HISTOGRAMS: Final = ("response", "service", "first_byte", "lateness")


class Piece(NamedTuple):
    """What was answered within 0.1 s, or within some of them."""

    began_ns: int
    ended_ns: int
    responses: int
    latency: Histogram


class Pieces:
    """Pieces of time in order, all of one length: when they are too many, neighbours are joined."""

    def __init__(self, most: int = limits.BENCH_WINDOWS_MAX) -> None:
        self._most = most
        self._each = 1  # slices in a piece
        self._open: list[Piece] = []
        self.whole: list[Piece] = []

    def add(self, piece: Piece) -> None:
        """The next slice."""
        self._open.append(piece)
        if len(self._open) < self._each:
            return
        self.whole.append(_joined(self._open))
        self._open = []
        if len(self.whole) >= self._most:
            self.whole = [_joined(self.whole[at : at + 2]) for at in range(0, len(self.whole), 2)]
            self._each *= 2

    def all(self) -> list[Piece]:
        """With the last one, which may be shorter."""
        return [*self.whole, _joined(self._open)] if self._open else list(self.whole)

    def latencies(self) -> list[Histogram]:
        """Of the pieces that have their length."""
        return [each.latency for each in self.whole]


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    total = Histogram()
    for each in pieces:
        total.merge(each.latency)
    return Piece(pieces[0].began_ns, pieces[-1].ended_ns, sum(each.responses for each in pieces), total)


@dataclass
class Counts:
    """What one tally counted, or several that follow each other."""

    counts: Counter[str]
    histograms: dict[str, Histogram]

    @classmethod
    def of(cls, tally: Tally) -> Counts:
        """Of one."""
        return cls(
            Counter({name: int(getattr(tally, name)) for name in NUMBERS}),
            {name: getattr(tally, name) for name in HISTOGRAMS},
        )

    def followed(self, by: Counts) -> None:
        """Take the next one in."""
        self.counts.update(by.counts)
        for name, histogram in by.histograms.items():
            self.histograms[name].merge(histogram)

    def late(self, tally: Tally) -> None:
        """What was answered behind the last window of an open loop; it was due in it."""
        for name in HISTOGRAMS:
            self.histograms[name].merge(getattr(tally, name))
        self.counts["failed"] += int(tally.failed)


@dataclass
class Part:
    """One window, or several that follow each other."""

    began_ns: int
    ended_ns: int
    before: Clocks
    after: Clocks
    server: ServerSplit | None
    all: Counts
    pieces: list[Piece]
    models: list[Counts] = field(default_factory=list)  # each of several
    records: list[Records] = field(default_factory=list)
    records_missed: int = 0
    stamps: list[Records] = field(default_factory=list)
    stamps_missed: int = 0
    tokens: Tokens | None = None
    number: int = 0  # of the first of them, from 1 on

    @classmethod
    def of(cls, tally: Tally, before: Clocks, after: Clocks, server: ServerSplit | None, pieces: list[Piece]) -> Part:
        """Of one window."""
        models = [Counts.of(each) for each in tally.parts or ()]
        tokens, counts = tally.tokens, Counts.of(tally)
        return cls(tally.began_ns, tally.ended_ns, before, after, server, counts, pieces, models, tokens=tokens)

    @property
    def completed(self) -> int:
        """Requests that ended well."""
        return self.all.counts["completed"]

    @property
    def rate(self) -> float:
        """Requests that ended well, a second."""
        return 1e9 * self.completed / (self.ended_ns - self.began_ns)

    def latency(self, percentile: int) -> float:
        """The average, or a percentile, from the intended time; ns."""
        response = self.all.histograms["response"]
        return float(response.quantile(percentile / 100)) if percentile > 0 else response.mean

    def keep(self, records: Records, missed: int, stamps: Records | None, stamps_missed: int) -> None:
        """Single requests and responses of it, as the loop gives them."""
        self.records.append(records)
        self.records_missed += missed
        if stamps is not None:
            self.stamps.append(stamps)
        self.stamps_missed += stamps_missed

    def followed(self, by: Part) -> None:
        """Take the next window in."""
        self.ended_ns, self.after = by.ended_ns, by.after
        self.server = added([self.server, by.server])
        self.all.followed(by.all)
        for mine, its in zip(self.models, by.models, strict=True):
            mine.followed(its)
        self.pieces += by.pieces
        self.records += by.records
        self.records_missed += by.records_missed
        self.stamps += by.stamps
        self.stamps_missed += by.stamps_missed
        if self.tokens is not None and by.tokens is not None:
            self.tokens.merge(by.tokens)


@dataclass
class Collected:
    """All of a level.  every: each window is part of the result, not only the last three; mixture: of models."""

    every: bool
    began_ns: int
    mixture: Mixture | None = None
    windows: list[Part] = field(default_factory=list)  # that are the result, as far as is known
    closed: int = 0
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_error: tuple[str, int] | None = None
    warm_up_errors: int = 0
    warm_up_ns: int = 0
    unanswered: int = 0
    unsent: int = 0
    late: Tally | None = None  # of an open loop: what was answered behind the last window
    late_records: tuple[Records, int, Records | None, int] | None = None
    notes: list[str] = field(default_factory=list)
    _before_silence: list[Part] = field(default_factory=list)
    _silent: list[Part] = field(default_factory=list)  # where every window counts: without an answer until now

    def take_errors(self, counts: Mapping[tuple[str, str], int], first: tuple[str, int] | None) -> None:
        """Those of a slice."""
        self.errors.update(counts)
        self.first_error = self.first_error or first

    def warmed_up(self, began_ns: int) -> None:
        """What came until now is in no figure."""
        self.warm_up_ns = time.monotonic_ns() - began_ns
        self.warm_up_errors = self.errors.total()
        if self.first_error is not None:
            self.notes.append(
                f"{self.warm_up_errors} requests of the warm-up failed, the first with: {self.first_error[0]}"
            )
        self.errors.clear()
        self.first_error = None

    def add(self, part: Part) -> None:
        """A window has ended."""
        self.closed += 1
        part.number = self.closed
        if self.every and self.windows:
            self._silent.append(part)
            if part.completed:
                self._take_silent()
            return
        if not part.completed and self.windows and self.windows[-1].completed:
            self._before_silence = list(self.windows)
        self.windows.append(part)
        while len(self.windows) > COMPARED and any(each.completed for each in self.windows[1:]):
            del self.windows[0]  # of a server that hangs the last window with answers stays, and all behind it

    def _take_silent(self) -> None:
        for each in self._silent:
            self.windows[0].followed(each)
        self._silent.clear()

    def gone(self) -> None:
        """The server is not there any more: windows in which it was gone already are not the result."""
        self._silent.clear()
        if self._before_silence and not self.windows[-1].completed:
            self.windows = self._before_silence

    def result(self, level: Level, *, stable: bool, reason: str, interrupted: bool) -> Measurement:
        """What the windows make together.  What was due in an open loop's windows and answered later counts."""
        self._take_silent()
        whole = self.windows[0]
        for each in self.windows[1:]:
            whole.followed(each)
        counts = whole.all.counts
        self._add_late(whole)
        pieces = Pieces()
        for piece in whole.pieces:
            pieces.add(piece)
        lost = sum(each.lost for each in whole.all.histograms.values())
        if lost:
            self.notes.append(f"{lost} durations are in no percentile: there was no memory for their counters")
        if whole.tokens is not None and whole.tokens.contents_missed:
            self.notes.append(
                f"{whole.tokens.contents_missed} answers of these windows are not in the export, which holds "
                f"{limits.BENCH_CONTENTS_BYTES_MAX >> 20} MiB of a level: measure for a shorter time"
            )
        if whole.records_missed:
            self.notes.append(
                f"{whole.records_missed} requests of these windows are not in the export, which holds "
                f"{limits.BENCH_RECORDS_MAX} of a level: measure for a shorter time"
            )
        if whole.stamps_missed:
            self.notes.append(
                f"{whole.stamps_missed} responses of these windows are not in the export: of their requests it has the "
                "first and the last; measure for a shorter time"
            )
        found = Measurement(
            level=level,
            began_ns=whole.began_ns,
            ended_ns=whole.ended_ns,
            began_realtime_ns=time.time_ns() - (time.monotonic_ns() - whole.began_ns),
            requests=counts["requests"],
            completed=counts["completed"],
            responses=counts["responses"],
            sequences=counts["sequences"],
            delayed=counts["delayed"],
            errors=self._errors(counts["failed"]),
            response=whole.all.histograms["response"],
            service=whole.all.histograms["service"],
            first_byte=whole.all.histograms["first_byte"],
            windows=tuple(
                Window(each.began_ns, each.ended_ns, each.responses, each.latency.to_bytes()) for each in pieces.all()
            ),
            sent_bytes=counts["sent_bytes"],
            received_bytes=counts["received_bytes"],
            server=whole.server,
            client=_cost(whole),
            stable=stable,
            reason=reason,
            unsent=self.unsent,
            notes=tuple(self.notes),
            warm_up_ns=self.warm_up_ns,
            windows_before=whole.number - 1,
            interrupted=interrupted,
            records=tuple(whole.records),
            records_missed=whole.records_missed,
            stamps=tuple(whole.stamps),
            tokens=whole.tokens,
        )
        return found if self.mixture is None else self._with_models(found, whole, self.mixture)

    def _with_models(self, found: Measurement, whole: Part, mixture: Mixture) -> Measurement:
        """What each model did in the same time.  The client's calls that send are shared out by requests."""
        splits = found.server.composing if found.server is not None else {}
        models = {}
        for number, (name, mine) in enumerate(zip(mixture.names, whole.models, strict=True)):
            counts = mine.counts
            by_text = mixture.errors_of(number, found.errors.by_text)
            client = replace(
                found.client,
                lateness=mine.histograms["lateness"],
                send_ns=found.client.send_ns * counts["requests"] // max(found.requests, 1),
                receive_ns=counts["receive_ns"],
            )
            models[name] = replace(
                found,
                requests=counts["requests"],
                completed=counts["completed"],
                responses=counts["responses"],
                delayed=counts["delayed"],
                errors=Errors(sum(by_text.values()), counts["failed"], 0, by_text),
                response=mine.histograms["response"],
                service=mine.histograms["service"],
                first_byte=mine.histograms["first_byte"],
                windows=(),
                sent_bytes=counts["sent_bytes"],
                received_bytes=counts["received_bytes"],
                server=splits.get(name),
                client=client,
                notes=(),
                unsent=0,
                records=(),
                records_missed=0,
                stamps=(),
            )
        server = None if found.server is None else replace(found.server, composing={})
        return replace(found, server=server, models=models)

    def _add_late(self, whole: Part) -> None:
        if self.late is None:
            return
        whole.all.late(self.late)
        for mine, tally in zip(whole.models, self.late.parts or (), strict=True):
            mine.late(tally)
        if whole.tokens is not None and self.late.tokens is not None:
            whole.tokens.merge(self.late.tokens)
        if self.late_records is not None:
            whole.keep(*self.late_records)

    def _errors(self, failed: int) -> Errors:
        first = None
        if self.first_error is not None:
            first = self.first_error[0], max(self.first_error[1] - self.began_ns, 0) / 1e9
        measured = min(failed + self.unanswered, self.errors.total())
        return Errors(self.errors.total(), measured, self.warm_up_errors, dict(self.errors), first, self.unanswered)


def _cost(whole: Part) -> ClientCost:
    counts = whole.all.counts
    return cost(
        whole.before,
        whole.after,
        Counted(
            idle_ns=counts["idle_ns"],
            gil_ns=counts["gil_ns"],
            send_ns=counts["send_ns"],
            receive_ns=counts["receive_ns"],
            delayed=counts["delayed"],
            lateness=whole.all.histograms["lateness"],
        ),
    )


def added(splits: list[ServerSplit | None]) -> ServerSplit | None:
    """Of windows that follow each other; None where one of them has none."""
    known = [each for each in splits if each is not None]
    if not known or len(known) < len(splits):
        return None
    numbers = {
        name: sum(getattr(each, name) for each in known)
        for name in ServerSplit.__dataclass_fields__
        if name.endswith(("_count", "_ns"))
    }
    sizes: Counter[int] = Counter()
    for each in known:
        sizes.update(each.batch_sizes)
    parts = {}
    for key in known[-1].composing:
        found = added([each.composing.get(key) for each in known])
        if found is not None:
            parts[key] = found
    return ServerSplit(
        known[-1].model, known[-1].version, **numbers, batch_sizes=dict(sizes), composing=parts, usage=_used(known)
    )


def _used(splits: list[ServerSplit]) -> Usage | None:
    """By all windows; the last one knows the processes and their memory."""
    found = [each.usage for each in splits if each.usage is not None]
    if len(found) < len(splits) or not found:
        return None
    cpu, wall = sum(each.cpu_ns for each in found), sum(each.wall_ns for each in found)
    return replace(found[-1], cpu_ns=cpu, wall_ns=wall, gpus=gpus_together(found))
