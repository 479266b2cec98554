"""The results of `make bench`: as a page for people and as facts for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from perf import agreement, machine
from perf.agreement import Agreed, agreed_row
from perf.bars import Bar, is_met
from perf.compare import Effort, Pair
from perf.pytriton_rows import NUMBERS_HEAD, Beside
from perf.scaling import SCALING_HEAD, Scaled, scaling_row
from perf.unlike import UNLIKE_HEAD, Found, unlike_row

FOREIGN_BUSY_MAX: Final = 0.05
"""Above this share of the machine taken by others, the ratios are no verdict: a server that yields instead of sleeping
was seen at 22000 requests/s on a quiet machine and at 4000 beside a compiler, with one connection."""
FAILURE_CHARS_MAX: Final = 300
ROUNDS_OF_SPREAD_MIN: Final = 4
STANDARD_ERROR_OF_QUARTILES: Final = 0.93
"""Of a median, per distance of the quartiles and root of the number of values, where these are normally distributed."""


class Measured(NamedTuple):
    """One number of each server, with its bar: seconds to ready, or bytes."""

    title: str
    unit: str
    triton: float
    tisfast: float
    most: float

    @property
    def ratio(self) -> float:
        """tisfast over Triton."""
        return self.tisfast / self.triton

    @property
    def met(self) -> bool:
        """Whether the ratio is within the bar."""
        return self.ratio <= self.most

    def row(self) -> str:
        """A line under SINGLES_HEAD."""
        a, b = f"{self.triton:.2f} {self.unit}", f"{self.tisfast:.2f} {self.unit}"
        return f"| {self.title} | {a} | {b} | {self.ratio:.2f} | {self.most:.2f} | {mark(self.met)} |"


class Results(NamedTuple):
    """All that was measured, and what could not be.

    foreign_busy, losses: of the machine before the run; loads: tisfast beside Triton; metrics: tisfast beside itself
    without metrics; singles: one number of each server; unlike: requests that are not alike, beside Triton;
    scaling: what one costs among few and among many; pytriton, numbers: tisfast.pytriton beside the real PyTriton;
    agreed: tisfast bench beside perf_analyzer, on either server.
    """

    foreign_busy: float
    losses: machine.Losses
    loads: list[tuple[Bar, Pair]]
    metrics: list[tuple[Bar, Pair]]
    singles: list[Measured]
    unlike: list[Found]
    scaling: list[Scaled]
    pytriton: list[tuple[Bar, Pair]]
    numbers: list[Beside]
    agreed: list[Agreed]
    failures: list[str]

    def met(self) -> list[bool]:
        """Whether each row meets all its bars."""
        rows = [all(bar.verdicts(found.ratio).values()) for bar, found in (*self.loads, *self.metrics, *self.pytriton)]
        return rows + [each.met for each in (*self.singles, *self.unlike, *self.scaling, *self.numbers, *self.agreed)]


def foreign(results: Results) -> str:
    """How busy the machine was before anything of ours ran, and what that means."""
    text = f"Other processes took {results.foreign_busy:.0%} of the machine before the run."
    return (
        text if results.foreign_busy <= FOREIGN_BUSY_MAX else f"{text}  **Not quiet: the verdicts below mean nothing.**"
    )


def lost(results: Results) -> str:
    """What the machine itself adds to tails, whatever is measured."""
    per_second, share, longest_us = results.losses
    return (
        f"A thread that only spins lost its core {per_second:.0f} times a second for more than 50 µs, {share:.1%} of "
        f"the time, {longest_us:,.0f} µs at the longest: p99 of short requests has that in it."
    )


def mark(met: bool) -> str:
    """How a verdict is printed."""
    return "met" if met else "**missed**"


def head(a: str, b: str) -> str:
    """Of a table of loads on two sides of these names."""
    return (
        f"| case | protocol | client | conc. | {a} req/s | {b} req/s | ratio | at least | "
        f"| {a} p50 µs | {b} p50 µs | ratio | at most | | {a} p99 µs | {b} p99 µs | ratio | at most | |\n"
        + "|---" * 19
        + "|"
    )


HEAD: Final = head("Triton", "tisfast")
METRICS_HEAD: Final = head("off", "on")
PYTRITON_HEAD: Final = head("PyTriton", "tisfast")
SINGLES_HEAD: Final = "| what | Triton | tisfast | ratio | at most | |\n|---|---|---|---|---|---|"


def load_row(bar: Bar, found: Pair) -> str:
    """A line under HEAD or METRICS_HEAD: what each side did, their ratio, its bar and the verdict."""
    load = bar.load
    cells = [bar.title, load.protocol, load.client, str(load.concurrency)]
    for name, bound in bar.bounds(found.ratio).items():
        a, b, ratio = (getattr(figures, name) for figures in (found.a, found.b, found.ratio))
        cells += [_figure(a, 0), _figure(b, 0), _figure(ratio, 2)]
        cells += ["", ""] if bound is None else [_figure(bound, 2), mark(is_met(name, ratio, bound))]
    return "| " + " | ".join(cells) + " |"


def spread(found: Pair) -> str:
    """How far the rounds' ratios of throughput lie apart, and with that what their median is worth."""
    ratios = sorted(each.rate for each in found.ratios())
    if len(ratios) < ROUNDS_OF_SPREAD_MIN:
        return f"The median of {len(ratios)} rounds, too few to say what it is worth."
    low, median, high = statistics.quantiles(ratios, n=4)
    error = STANDARD_ERROR_OF_QUARTILES * (high - low) / math.sqrt(len(ratios))
    return (
        f"The ratio is the median of {len(ratios)} rounds' ratios, half of which lie between {low:.3f} and {high:.3f}: "
        f"{median:.3f} ± {error:.3f}."
    )


def _figure(value: float, decimals: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{decimals}f}"


def markdown(results: Results, effort: Effort) -> str:
    """The whole page."""
    return "\n".join(_lines(results, effort)) + "\n"


def _lines(results: Results, effort: Effort) -> Iterator[str]:
    met = results.met()
    yield "# tisfast beside the real Triton"
    yield ""
    yield f"{machine.processor()}, {machine.cores()} cores; commit `{machine.commit()}`; Triton 2.51, Python backend."
    yield f"{effort.rounds} rounds, alternating, of {effort.seconds:g} s; medians.  Only ratios mean something."
    yield foreign(results)
    yield lost(results)
    yield f"{sum(met)} of {len(met)} rows meet all their bars.  How to read this: docs/benchmarks.md."
    if results.loads:
        yield ""
        yield HEAD
        yield from (load_row(*each) for each in results.loads)
    if results.singles:
        yield ""
        yield SINGLES_HEAD
        yield from (single.row() for single in results.singles)
    if results.unlike:
        yield "\nAn open-loop client; mixed lengths, and a small request each 5 ms beside others:\n"
        yield UNLIKE_HEAD
        yield from map(unlike_row, results.unlike)
    if results.scaling:
        yield "\nWhat one costs among few and among many, tisfast alone:\n"
        yield SCALING_HEAD
        yield from map(scaling_row, results.scaling)
    if results.pytriton or results.numbers:
        yield "\ntisfast.pytriton beside PyTriton, the same program on both:"
        yield from pytriton_lines(results.pytriton, results.numbers)
    if results.agreed:
        yield "\ntisfast bench beside perf_analyzer, the same server and flags:\n"
        yield agreement.HEAD
        yield from map(agreed_row, results.agreed)
    if results.metrics:
        yield "\ntisfast beside itself without metrics:\n"
        yield METRICS_HEAD
        yield from (load_row(*each) for each in results.metrics)
        yield from (f"\n{spread(found)}" for _, found in results.metrics)
    for failure in results.failures:
        yield f"\nNot measured: {failure[:FAILURE_CHARS_MAX]}"


def pytriton_lines(loads: list[tuple[Bar, Pair]], numbers: list[Beside]) -> Iterator[str]:
    """Both tables of the group."""
    if loads:
        yield from ("", PYTRITON_HEAD, *(load_row(*each) for each in loads))
    if numbers:
        yield from ("", NUMBERS_HEAD, *(each.row() for each in numbers))


def facts(results: Results, effort: Effort) -> dict[str, Any]:
    """The same, for programs."""
    return {
        "processor": machine.processor(),
        "cores": machine.cores(),
        "commit": machine.commit(),
        "effort": effort._asdict(),
        "foreign_busy": results.foreign_busy,
        "losses": results.losses._asdict(),
        "loads": [_load_facts(*each) for each in results.loads],
        "metrics": [_load_facts(*each) for each in results.metrics],
        "singles": [{**s._asdict(), "ratio": s.ratio, "met": s.met} for s in results.singles],
        "unlike": [each.facts() for each in results.unlike],
        "scaling": [each.facts() for each in results.scaling],
        "pytriton": [_load_facts(*each) for each in results.pytriton],
        "numbers": [each.facts() for each in results.numbers],
        "agreed": [each.facts() for each in results.agreed],
        "failures": results.failures,
    }


def _load_facts(bar: Bar, found: Pair) -> dict[str, Any]:
    bounds = {name: bound for name, bound in bar.bounds(found.ratio).items() if bound is not None}
    return {"title": bar.title, **found.facts(), "bars": bounds, "met": bar.verdicts(found.ratio)}
