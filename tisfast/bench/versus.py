"""Two servers by turns: the same load on each in short windows, A B B A A B ...  Layer 5 (bench).

What the machine does in seconds or minutes is then the same for both, and the ratio of two neighbouring windows says
how the servers differ.  A window of one server begins when the other one has answered all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tisfast.bench.client_side import Counted, limited
from tisfast.bench.collected import added
from tisfast.bench.histogram import Histogram
from tisfast.bench.loop import Loop
from tisfast.bench.measure import Job, LevelRun, Progress
from tisfast.bench.results import ClientCost, Errors, Level, Measurement, Run, Window
from tisfast.bench.server_side import ServerSide
from tisfast.bench.session import Session
from tisfast.bench.tokens import Tokens
from tisfast.errors import BadRequest, TisError, Unavailable

EMPTY_MAX: Final = 5
"""Pairs with a window that has no answer are left out, but not more of them one after the other."""


class Side:
    """One of both servers at one level, with connections that stay open."""

    def __init__(self, session: Session, level: Level, progress: Callable[[Progress], None]) -> None:
        self._session = session
        self.loop: Loop
        self.loop, job = session.prepared(level)
        self._job: Job = replace(job, settings=replace(job.settings, trials=1), progress=progress)
        self._server: ServerSide | None = session.server

    def window(self) -> Measurement:
        """The next one.  Raises Unavailable when all of its requests failed.

        It has no answer where the first one took longer than the window, as on a busy machine.
        """
        self.loop.allow(-1)
        found = LevelRun(self.loop, self._job, self._server, self._session.stop).measure()
        if found.server is None:
            self._server = None  # to wait for it again would lengthen each window
        first = found.errors.first
        if not found.completed and first is not None and not self._session.stop.requested:
            raise Unavailable(
                f"{self._session.asked.address} answered no request of a window: the first one failed with: {first[0]}"
            )
        return found


@dataclass
class Versus:
    """Measures both, level after level.  pairs: windows of each at a level; on_level: told of both when it is done."""

    first: Session
    second: Session
    pairs: int
    on_level: Callable[[Measurement, Measurement], None] = lambda *_: None
    failure: TisError | None = field(default=None, init=False)  # ended the run, not at its very start
    _left: int = field(default=0, init=False)  # windows of a level

    def __post_init__(self) -> None:
        """Both must take the same.  Raises BadRequest."""
        mine, its = (
            {each.name: each.datatype for each in session.model.metadata.inputs}
            for session in (self.first, self.second)
        )
        if mine != its:
            addresses = [session.asked.address for session in (self.first, self.second)]
            raise BadRequest(
                f"the inputs of model '{self.first.asked.model}' are {mine} at {addresses[0]} and {its} at "
                f"{addresses[1]}: only servers of the same model are compared"
            )

    def run(self) -> tuple[Run, Run]:
        """All levels.  Raises TisError when nothing could be measured at all."""
        firsts: list[Measurement] = []
        seconds: list[Measurement] = []
        try:
            for level in self.first.levels(firsts):
                both = self._level(level)
                firsts.append(both[0])
                seconds.append(both[1])
                self.on_level(*both)
                if self.first.stop.requested or self.failure is not None:
                    break
        except TisError as error:
            if not firsts:
                raise
            self.failure = error
        finally:
            self.first.close()
            self.second.close()
        return self.first.run_of(firsts), self.second.run_of(seconds)

    def _level(self, level: Level) -> tuple[Measurement, Measurement]:
        stop = self.first.stop
        kept: list[tuple[Measurement, Measurement]] = []
        sides: list[Side] = []
        try:
            for session in (self.first, self.second):
                sides.append(Side(session, level, partial(self._tell, session)))
            left_out = self._pairs(sides, kept)
        finally:
            for side in sides:
                side.loop.close()
        if not kept:
            raise Unavailable("it was interrupted before both servers had a whole window: nothing can be compared")
        reason = f"{len(kept)} windows of each server by turns"
        if left_out:
            reason += f"; {left_out} more pairs are left out, in which a server had no answer"
        if stop.requested:
            reason = f"it was interrupted behind {reason}"
        elif self.failure is not None:
            reason = f"it ended behind {reason}: {self.failure.message}"
        cut = stop.requested or self.failure is not None
        first, second = (
            replace(joined(level, parts, reason, cut), most_requests=session.most_requests)
            for session, parts in zip((self.first, self.second), zip(*kept, strict=True), strict=True)
        )
        return first, second

    def _pairs(self, sides: Sequence[Side], kept: list[tuple[Measurement, Measurement]]) -> int:
        """Measure them into `kept`; gives how many were left out.  A failure ends it, and is raised if none is."""
        stop, left_out, empty = self.first.stop, 0, 0
        self._left = 2 * (self.pairs + 1)
        try:
            for number in range(-1, self.pairs):  # the first pair is the warm-up
                order = (0, 1) if number % 2 == 0 else (1, 0)
                found: dict[int, Measurement] = {}
                for at in order:
                    if not stop.requested:
                        found[at] = sides[at].window()
                        self._left -= 1
                if stop.requested:
                    break
                silent = next((at for at in order if not found[at].completed), None)
                empty = 0 if silent is None else empty + 1
                if silent is not None and empty == EMPTY_MAX:
                    raise self._silent(silent)
                if number >= 0 and silent is None:
                    kept.append((found[0], found[1]))
                elif number >= 0:
                    left_out += 1
        except TisError as error:
            if not kept:
                raise
            self.failure = error
        return left_out

    def _silent(self, at: int) -> Unavailable:
        asked = (self.first, self.second)[at].asked
        return Unavailable(
            f"{EMPTY_MAX} pairs of windows one after the other had no answer from a server, the last one from "
            f"{asked.address}: -p {asked.settings.window_ms} ms is shorter than an answer takes, so make it longer"
        )

    def _tell(self, session: Session, progress: Progress) -> None:
        """With the windows that are still to come."""
        settings, left = session.asked.settings, progress.left_seconds
        if left is not None:
            later = (self._left - 1) * settings.window_ms / 1000
            left = None if settings.request_count else left + later
        session.progress(progress._replace(left_seconds=left))


def joined(level: Level, parts: Sequence[Measurement], reason: str, cut: bool) -> Measurement:
    """Windows of one server as one measurement; the time of the other one's is left out.  cut: others were to come."""
    base = parts[0].began_ns
    windows, at = [], base
    for each in parts:
        length = each.ended_ns - each.began_ns
        windows.append(Window(at, at + length, each.completed, each.response.to_bytes()))
        at += length
    numbers = {
        name: sum(getattr(each, name) for each in parts)
        for name in ("requests", "completed", "responses", "delayed", "unsent", "sequences")
    }
    return Measurement(
        level=level,
        began_ns=base,
        ended_ns=at,
        began_realtime_ns=parts[0].began_realtime_ns,
        **numbers,
        errors=_errors(parts),
        response=_merged([each.response for each in parts]),
        service=_merged([each.service for each in parts]),
        first_byte=_merged([each.first_byte for each in parts]),
        windows=tuple(windows),
        sent_bytes=sum(each.sent_bytes for each in parts),
        received_bytes=sum(each.received_bytes for each in parts),
        server=added([each.server for each in parts]),
        client=_cost(parts, numbers["delayed"]),
        stable=not cut and not numbers["unsent"],
        reason=reason,
        notes=tuple(dict.fromkeys(note for each in parts for note in each.notes)),
        interrupted=cut,
        gpus=parts[-1].gpus,
        tokens=_tokens(parts),
    )


def _tokens(parts: Sequence[Measurement]) -> Tokens | None:
    whole, *others = (each.tokens for each in parts)
    for each in others:
        if whole is not None and each is not None:
            whole.merge(each)
    return whole


def _merged(histograms: Sequence[Histogram]) -> Histogram:
    total = Histogram()
    for each in histograms:
        total.merge(each)
    return total


def _errors(parts: Sequence[Measurement]) -> Errors:
    by_text: dict[tuple[str, str], int] = {}
    for each in parts:
        for key, count in each.errors.by_text.items():
            by_text[key] = by_text.get(key, 0) + count
    first = next((each.errors.first for each in parts if each.errors.first is not None), None)
    count, measured = (sum(getattr(each.errors, name) for each in parts) for name in ("count", "measured"))
    return Errors(count, measured, sum(each.errors.warm_up for each in parts), by_text, first)


def _cost(parts: Sequence[Measurement], delayed: int) -> ClientCost:
    names = ("cpu_ns", "wall_ns", "busy_ns", "gil_ns", "runqueue_ns", "send_ns", "receive_ns")
    sums = {name: sum(getattr(each.client, name) for each in parts) for name in names}
    lateness = _merged([each.client.lateness for each in parts])
    wall_ns = max(sums["wall_ns"], 1)
    counted = Counted(wall_ns - sums["busy_ns"], sums["gil_ns"], sums["send_ns"], sums["receive_ns"], delayed, lateness)
    shares = [sums[name] / wall_ns for name in ("busy_ns", "runqueue_ns", "gil_ns")]
    return ClientCost(**sums, lateness=lateness, limited=limited(shares[0], shares[1], counted, shares[2]))
