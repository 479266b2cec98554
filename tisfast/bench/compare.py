"""`tisfast bench compare`: is the second run slower than the first, and can the difference be chance?  Layer 5 (bench).

A run's time is cut into rounds that no longer depend on each other.  Rounds, not requests, are what is compared: the
ratio of their medians with its interval (bootstrap), and Mann and Whitney's test, corrected for the number of tests.
Where both servers were alternated a round is a pair of windows, and the pairs' ratios are judged, by Wilcoxon's test.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import numpy as np

from tisfast.bench.documents import Piece, Saved, read_run
from tisfast.bench.figures import needed_for
from tisfast.bench.histogram import Histogram
from tisfast.bench.statistics import Interval, bootstrap_ratio, holm, lag_one, mann_whitney, signed_rank
from tisfast.errors import BadRequest, TisError

ROUNDS_MAX: Final = 40
PAIRS_MAX: Final = 200
ROUNDS_MIN: Final = 8
"""With fewer no test of ranks can show much."""
CORRELATION_MAX: Final = 0.2
CHANCE: Final = 0.05
"""A corrected probability below it is no chance."""
FINE, REGRESSED, USAGE = 0, 4, 99
"""Exit codes."""
PERCENTILES: Final = (50, 90, 95, 99)


class Row(NamedTuple):
    """One figure of one level.  worse: the change in percent that is for the worse; p: corrected; paired: as Rounds."""

    level: tuple[str, float]
    name: str
    first: float
    second: float
    ratio: Interval
    p: float
    verdict: str
    worse: float
    paired: bool


class Rounds(NamedTuple):
    """One figure of both runs, by round.  paired: the rounds of both belong together."""

    name: str
    higher_is_better: bool
    first: np.ndarray
    second: np.ndarray
    paired: bool

    @property
    def chance(self) -> float:
        """The probability that equal servers differ so much."""
        return (signed_rank if self.paired else mann_whitney)(self.first, self.second)

    @property
    def ratio(self) -> Interval:
        """Of the second by the first."""
        return bootstrap_ratio(self.first, self.second, paired=self.paired)


def compare(first: Sequence[Saved], second: Sequence[Saved], margin: float, *, paired: bool = False) -> list[Row]:
    """All figures of all levels that both have.  margin: percent within which they count as the same."""
    levels = [key for key in first[0].levels if all(key in run.levels for run in (*first, *second))]
    if not levels:
        raise BadRequest(
            f"{first[0].path} has the levels {_levels(first[0])} and {second[0].path} {_levels(second[0])}, none in "
            "common: measure both with the same --concurrency-range or --request-rate-range"
        )
    found = [(level, rounds) for level in levels for rounds in _figures(first, second, level, paired)]
    chances = holm([rounds.chance for _, rounds in found])
    return [_row(level, rounds, p, margin) for (level, rounds), p in zip(found, chances, strict=True)]


def _row(level: tuple[str, float], rounds: Rounds, p: float, margin: float) -> Row:
    first, second, ratio = float(np.median(rounds.first)), float(np.median(rounds.second)), rounds.ratio
    change = 100 * (ratio.value - 1)
    worse = -change if rounds.higher_is_better else change
    inside = ratio.high is not None and 100 * max(abs(ratio.low - 1), abs(ratio.high - 1)) <= margin
    if inside:
        verdict = f"same within {margin:g} %"
    elif p >= CHANCE or math.isnan(ratio.value):
        verdict = "unclear"
    else:
        verdict = "worse" if worse > 0 else "better"
    return Row(level, rounds.name, first, second, ratio, p, verdict, worse, rounds.paired)


def regressions(rows: Sequence[Row], percent: float) -> list[Row]:
    """Those that are worse by more, and not by chance; also where the margin calls them the same."""
    return [row for row in rows if row.p < CHANCE and row.worse > percent]


def _figures(
    first: Sequence[Saved], second: Sequence[Saved], level: tuple[str, float], paired: bool
) -> Iterator[Rounds]:
    windows = paired and all(run.alternated for run in (*first, *second))
    rounds = _pairs(first, second, level) if windows else (_rounds(first, level), _rounds(second, level))
    sizes = [run[0].batch_size for run in (first, second)]
    rates = [
        np.array([size * each.responses / each.seconds for each in mine if each.seconds > 0])
        for mine, size in zip(rounds, sizes, strict=True)
    ]
    means = [np.array([_mean(each.latency) for each in mine if each.latency.count]) for mine in rounds]
    found = [("infer/sec", rates), ("mean usec", means)]
    for percent in PERCENTILES:
        needed = needed_for(percent / 100)
        joined = _both_joined(*rounds, needed) if windows else [_joined(mine, needed) for mine in rounds]
        values = [np.array([each.latency.quantile(percent / 100) / 1000 for each in mine]) for mine in joined]
        found.append((f"p{percent} usec", values))
    for name, (mine, its) in found:
        if min(len(mine), len(its)) >= ROUNDS_MIN:
            yield Rounds(name, name == "infer/sec", mine, its, paired and len(mine) == len(its))


def _mean(histogram: Histogram) -> float:
    return histogram.sum / histogram.count / 1000


def _rounds(runs: Sequence[Saved], level: tuple[str, float]) -> list[Piece]:
    """Of all runs: neighbours joined until the throughput of one no longer depends on that of the last."""
    found: list[Piece] = []
    for run in runs:
        pieces = list(run.levels[level])
        while len(pieces) >= 2 * ROUNDS_MIN:
            rates = np.array([each.responses / each.seconds if each.seconds else 0.0 for each in pieces])
            means = np.array([_mean(each.latency) if each.latency.count else 0.0 for each in pieces])
            if len(pieces) <= ROUNDS_MAX and max(abs(lag_one(rates)), abs(lag_one(means))) <= CORRELATION_MAX:
                break
            pieces = _halved(pieces)
        found += pieces
    return found


def _pairs(
    first: Sequence[Saved], second: Sequence[Saved], level: tuple[str, float]
) -> tuple[list[Piece], list[Piece]]:
    """Windows of both that belong together: neighbours joined, in both alike, until a ratio does not follow the last.

    Raises BadRequest where one has more windows.  A window without an answer has no ratio, and its pair is left out.
    """
    pairs: list[tuple[Piece, Piece]] = []
    for mine, its in zip(first, second, strict=False):
        if len(mine.levels[level]) != len(its.levels[level]) or len(first) != len(second):
            raise BadRequest(
                f"--paired: {mine.path} has {len(mine.levels[level])} windows at {_level(level)} and {its.path} "
                f"{len(its.levels[level])}; name the two files that one tisfast bench --vs wrote"
            )
        pairs += zip(mine.levels[level], its.levels[level], strict=True)
    used = [pair for pair in pairs if all(each.latency.count and each.seconds > 0 for each in pair)]
    one, other = [pair[0] for pair in used], [pair[1] for pair in used]
    while len(one) >= 2 * ROUNDS_MIN:
        means = np.array([_mean(b.latency) / _mean(a.latency) for a, b in zip(one, other, strict=True)])
        limit = max(CORRELATION_MAX, 2 / math.sqrt(len(one)))  # what chance alone gives with so few
        if len(one) <= PAIRS_MAX and lag_one(means) <= limit:
            break
        one, other = _halved(one), _halved(other)
    return one, other


def _halved(pieces: list[Piece]) -> list[Piece]:
    """Neighbours joined; an odd one at the start is left out."""
    return [_join(pieces[at : at + 2]) for at in range(len(pieces) % 2, len(pieces), 2)]


def _both_joined(first: list[Piece], second: list[Piece], needed: int) -> list[list[Piece]]:
    """As `_joined`, of pairs."""
    while len(first) >= ROUNDS_MIN:
        if min(each.latency.count for each in (*first, *second)) >= needed:
            return [first, second]
        first, second = _halved(first), _halved(second)
    return [[], []]


def _join(pieces: Sequence[Piece]) -> Piece:
    total = Histogram()
    for piece in pieces:
        total.merge(piece.latency)
    return Piece(sum(each.seconds for each in pieces), sum(each.responses for each in pieces), total)


def _joined(pieces: list[Piece], needed: int) -> list[Piece]:
    """Neighbours joined until each has enough requests for a percentile; none where that leaves too few."""
    while len(pieces) >= ROUNDS_MIN:
        if min(each.latency.count for each in pieces) >= needed:
            return pieces
        pieces = _halved(pieces)
    return []


def check_alike(first: Sequence[Saved], second: Sequence[Saved]) -> None:
    """Raises BadRequest where what was measured differs, so that a ratio would say nothing."""
    one = first[0]
    for other in (*first[1:], *second):
        for name in dict.fromkeys([*one.setup, *other.setup]):
            mine, its = one.setup.get(name), other.setup.get(name)
            if mine != its:
                raise BadRequest(
                    f"the {name} is {mine!r} in {one.path} and {its!r} in {other.path}: compare runs of one "
                    "set-up, or say --force"
                )


def _levels(run: Saved) -> str:
    return ", ".join(_level(each) for each in run.levels) or "none"


def _level(level: tuple[str, float]) -> str:
    return f"{level[0].replace('_', ' ')} {level[1]:g}"


def table(rows: Sequence[Row]) -> str:
    """For a terminal."""
    lines = []
    last = None
    for row in rows:
        if row.level != last:
            lines += ["", _level(row.level).capitalize()]
            lines.append(f"  {'':<10} {'first':>12} {'second':>12}  {'ratio':>6}  {'95 % interval':<17} {'p':>6}  ")
            last = row.level
        high = "" if row.ratio.high is None else f"{row.ratio.high:.3f}"
        interval = f"{row.ratio.low:.3f} to {high}" if high else "unknown"
        lines.append(
            f"  {row.name:<10} {_figure(row.first):>12} {_figure(row.second):>12}  {row.ratio.value:>6.3f}"
            f"  {interval:<17} {row.p:>6.3f}  {row.verdict}"
        )
    return "\n".join(lines) + "\n"


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tisfast bench compare",
        description="Compare two runs: files of tisfast bench --json, or of --profile-export-file.",
        epilog=f"Exit code: {FINE}, {REGRESSED} for a regression, {USAGE} for files or flags that cannot be used.",
        exit_on_error=False,
    )
    parser.add_argument("first", help="a file, or several with commas between them: the base")
    parser.add_argument("second", help="a file, or several with commas between them: what is judged")
    parser.add_argument("--margin", type=float, default=5.0, metavar="PERCENT", help="within it they are the same (5)")
    parser.add_argument(
        "--fail-above",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="a change for the worse beyond it is a regression (5)",
    )
    parser.add_argument("--paired", action="store_true", help="both were alternated: their rounds belong together")
    parser.add_argument("--force", action="store_true", help="compare runs of different models or machines, too")
    return parser


def main(arguments: Sequence[str], out: TextIO | None = None, err: TextIO | None = None) -> int:
    """The command.  Returns the exit code."""
    out, err = out or sys.stdout, err or sys.stderr
    try:
        given = _parser().parse_args(list(arguments))
    except argparse.ArgumentError as error:
        err.write(f"tisfast bench compare: {error}\n")
        return USAGE
    except SystemExit as ended:  # --help, and what argparse says by itself
        return USAGE if ended.code else FINE
    try:
        for name in ("margin", "fail_above"):
            if not 0 <= getattr(given, name) < math.inf:
                raise BadRequest(
                    f"--{name.replace('_', '-')} is {getattr(given, name):g}: write a number of percent, 0 or more"
                )
        first = [read_run(path) for path in _paths(given.first)]
        second = [read_run(path) for path in _paths(given.second)]
        if not given.force:
            check_alike(first, second)
        rows = compare(first, second, given.margin, paired=given.paired)
    except TisError as error:
        err.write(f"tisfast bench compare: {error.message}\n")
        return USAGE
    return report(first, second, rows, given.fail_above, out)


def _paths(text: str) -> list[str]:
    """Several with commas between them, or one that has some in its name."""
    return [text] if Path(text).is_file() else text.split(",")


def report(first: Sequence[Saved], second: Sequence[Saved], rows: Sequence[Row], fail_above: float, out: TextIO) -> int:
    """Write the table and what it means.  Returns the exit code."""
    out.write(f"first: {', '.join(run.path for run in first)}\nsecond: {', '.join(run.path for run in second)}\n")
    if not rows:
        out.write(f"Nothing can be compared: both need {ROUNDS_MIN} rounds or more with answers; measure for longer.\n")
        return USAGE
    out.write(table(rows) + "\n")
    if any(row.paired for row in rows):
        out.write(
            "ratio: the median of second by first in each pair; it may differ from the ratio of the two medians beside "
            "it.\n"
        )
    skipped = sorted({f"p{each} usec" for each in PERCENTILES} - {row.name for row in rows})
    if skipped:
        out.write(f"Too few requests for {', '.join(skipped)}: measure for longer.\n")
    if len(first) == len(second) == 1 and not (first[0].alternated and second[0].alternated):
        out.write("One run each: what differs from run to run is not in the intervals; give several with commas.\n")
    failed = sum(sum(run.errors.values()) for run in second)
    if failed:
        out.write(f"{failed} requests of the second failed, and are in no figure.\n")
    found = regressions(rows, fail_above)
    for row in found:
        out.write(f"REGRESSION: {row.name} at {_level(row.level)} is worse by {row.worse:.1f} %\n")
    if not found:
        out.write(f"No figure is worse by more than {fail_above:g} %, chance excepted.\n")
    return REGRESSED if found else FINE
