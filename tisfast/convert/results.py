"""What a conversion gives: values without behaviour, which the reports read.  Layer 5 (convert)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tisfast.bench.figures import needed_for
from tisfast.convert.compare import Tolerance
from tisfast.convert.signature import Signature

Status = Literal["ok", "wrong", "failed", "skipped"]
NEAR: Final = 0.03
"""Figures that differ by less are alike, however well they are known."""
UNKNOWN: Final = 0.5
"""How far a figure is taken to be off at most, however badly it is known: else all are like one with few answers."""
P99_REQUESTS: Final = needed_for(0.99)
"""That tell a p99."""


@dataclass(frozen=True)
class Measured:
    """One load on one format: so many requests under way at one time.

    reason: why it ended, one sentence; within: the 95 % interval of the average latency, as a share of it to both
    sides, and in a closed loop that of the throughput; infinite where there were too few answers to know.  error: of
    the first request that failed.  p99_known: there were enough requests for one.
    """

    concurrency: int
    throughput: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    requests: int
    errors: int
    stable: bool
    reason: str
    within: float = 0.0
    error: str = ""
    p99_known: bool = True

    @property
    def failure(self) -> str:
        """How many requests failed and why, one sentence; "" where none did."""
        if not self.errors:
            return ""
        all_ = self.errors + self.requests
        return f"{self.errors} of {all_} requests failed with {self.concurrency} at one time: {self.error}"


@dataclass(frozen=True)
class Try:
    """One format in one precision.

    status: ok; wrong: its answers are not the source's; failed: it could not be made, loaded or asked, or requests
    failed under load; skipped: this machine lacks what it needs.  reason: of all but ok; note: what clients must know.
    max_absolute, max_relative: the largest differences from the source's answers, None where no numbers were compared;
    differs_most: where the relative one is, see compare.Difference.  nbytes: of its files.  lacks: outputs of the
    source that it does not answer.
    """

    format: str
    precision: str
    backend: str
    status: Status
    reason: str = ""
    note: str = ""
    max_absolute: float | None = None
    max_relative: float | None = None
    nbytes: int = 0
    convert_seconds: float = 0.0
    load_seconds: float = 0.0
    measured: tuple[Measured, ...] = ()
    differs_most: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.format} {self.precision}"


@dataclass(frozen=True)
class Wanted:
    """The user's constraint.  max_latency_ms: of the p99 of a load that counts; min_throughput: a second; 0: none."""

    max_latency_ms: float = 0.0
    min_throughput: float = 0.0


@dataclass(frozen=True)
class Conversion:
    """All tries, and the best.

    best: None where none is right and fits; why: one sentence.  model: the best one's folder, where one was written.
    rows: of the samples that were compared; drawn: the samples are random numbers; max_batch_size: of what was asked, 0
    without batches.  tolerances: by precision; scales: of the outputs of numbers, one or one for each
    place of an axis, see scales.scales_of.
    """

    source: str
    kind: str
    name: str
    signature: Signature
    rows: int
    drawn: bool
    max_batch_size: int
    wanted: Wanted
    tries: tuple[Try, ...]
    best: Try | None
    why: str
    machine: dict[str, str]
    model: Path | None = None
    notes: tuple[str, ...] = ()
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    scales: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def asked(self) -> str:
        """How the samples were asked for, for people."""
        if not self.signature.batches:
            return "one by one"
        return f"alone and in batches of {self.max_batch_size}"


def choose(tries: tuple[Try, ...], wanted: Wanted) -> tuple[Try | None, str]:
    """The best one that is right, and why it is that."""
    right = [each for each in tries if each.status == "ok" and each.measured and not failure(each)]
    if not right:
        return None, "no format could be made whose answers are the source's"
    right.sort(key=lambda each: each.precision != "fp32")  # FP16 changes more of the source than any format in FP32
    whole = [each for each in right if not each.lacks]
    known = [each for each in whole if all(level.p99_known for level in _holding(each, wanted))]
    best, why = None, ""
    for some in (known if wanted.max_latency_ms else whole, whole, right):
        best, why = _chosen(some, wanted) if some else (None, "")
        if best is not None:
            break
    if best is not None and wanted.max_latency_ms and not (load := _load_of(best, wanted)).p99_known:
        why += f"; that p99 is of {load.requests} requests alone, and {P99_REQUESTS} tell one: give more --seconds"
    return best, why


def _chosen(right: Sequence[Try], wanted: Wanted) -> tuple[Try | None, str]:
    fitting = [each for each in right if _rate(each, wanted) > 0]
    if not fitting:
        least = min(min(level.p99_ms for level in each.measured) for each in right)
        return None, (
            f"no format answers within {wanted.max_latency_ms:g} ms (p99): the least that was measured is {least:.3g} "
            "ms; raise --max-latency"
        )
    if wanted.min_throughput:
        return _quickest(fitting, wanted)
    most = max((_counted(each, wanted) for each in fitting), key=lambda level: level.throughput)
    best = _unbeaten(fitting, lambda each: _counted(each, wanted), "throughput", 1)
    level = _counted(best, wanted)
    within = f" with a p99 within {wanted.max_latency_ms:g} ms" if wanted.max_latency_ms else ""
    if level is most:
        return best, f"{best.name} answers most: {level.throughput:.4g} requests a second{within}"
    return best, (
        f"{best.name} answers {level.throughput:.4g} requests a second{within}: {most.throughput:.4g} is the most, "
        "which the figures do not tell apart, and it changes less of the source"
    )


def failure(each: Try) -> str:
    """Of the first load in which requests failed, one sentence; "" where none did."""
    return next((level.failure for level in each.measured if level.errors), "")


def shown(each: Try, wanted: Wanted) -> Measured | None:
    """The load that stands for a try: the one that counts, else the one with the most requests a second."""
    if not each.measured:
        return None
    if _rate(each, wanted) > 0:
        return _counted(each, wanted)
    return max(each.measured, key=lambda level: level.throughput)


def _quickest(fitting: list[Try], wanted: Wanted) -> tuple[Try | None, str]:
    enough = [each for each in fitting if _rate(each, wanted) >= wanted.min_throughput]
    if not enough:
        best = max(_rate(each, wanted) for each in fitting)
        return None, (
            f"no format answers {wanted.min_throughput:g} requests a second: the most is {best:.4g}; lower "
            "--min-throughput, or raise --concurrency"
        )
    found = _unbeaten(enough, lambda each: _lightest(each, wanted), "mean_ms", -1)
    return found, (
        f"{found.name} answers soonest, within {_lightest(found, wanted).mean_ms:.3g} ms on the average, of those that "
        f"answer {wanted.min_throughput:g} requests a second"
        + (f" with a p99 within {wanted.max_latency_ms:g} ms" if wanted.max_latency_ms else "")
    )


def _unbeaten(tries: Sequence[Try], load: Callable[[Try], Measured], figure: str, sign: int) -> Try:
    """The first one that no other clearly beats.  sign: 1 where more of the figure is better, else -1.

    Held against all: of the one with the best figure alone, that figure may be badly known, and like any other.
    """

    def beats(other: Measured, one: Measured) -> bool:
        ahead = sign * (float(getattr(other, figure)) - float(getattr(one, figure)))
        return ahead > 0 and not _alike(one, other, figure)

    loads = [(each, load(each)) for each in tries]
    return next(each for each, own in loads if not any(beats(other, own) for _, other in loads))


def _alike(one: Measured, other: Measured, figure: str) -> bool:
    """Whether a figure of both may be the same: how well each is known decides."""
    a, b = float(getattr(one, figure)), float(getattr(other, figure))
    known = math.hypot(min(one.within, UNKNOWN), min(other.within, UNKNOWN))
    return abs(a - b) <= max(NEAR, known) * max(a, b)


def _counted(each: Try, wanted: Wanted) -> Measured:
    """The load with the most requests a second, of those that hold the latency.  There is one."""
    return max(_holding(each, wanted), key=lambda level: level.throughput)


def _load_of(best: Try, wanted: Wanted) -> Measured:
    """The load that it was chosen by."""
    return _lightest(best, wanted) if wanted.min_throughput else _counted(best, wanted)


def _rate(each: Try, wanted: Wanted) -> float:
    """Of the loads that hold the latency; 0 where none does."""
    return max((level.throughput for level in _holding(each, wanted)), default=0.0)


def _lightest(each: Try, wanted: Wanted) -> Measured:
    """Of the loads that hold the latency the one with the fewest requests under way.  There is one."""
    return min(_holding(each, wanted), key=lambda level: level.concurrency)


def _holding(each: Try, wanted: Wanted) -> list[Measured]:
    """The loads that hold the latency: of which that is known, where there are such."""
    limit = wanted.max_latency_ms or math.inf
    found = [level for level in each.measured if level.p99_ms <= limit]
    known = [level for level in found if level.p99_known]
    return known if known and wanted.max_latency_ms else found
