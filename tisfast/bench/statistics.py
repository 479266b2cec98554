"""How far measured figures can be trusted: intervals, warm-up, drift, comparisons.  numpy alone.  Layer 5 (bench).

Neighbouring latencies are alike, so a thousand of them tell less than a thousand draws would.  How much less is seen in
pieces of time (batches): the share of slow requests differs more from batch to batch than independent draws allow, and
the number of samples is divided by the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np

from tisfast.bench.histogram import Histogram

Series = np.ndarray[Any, np.dtype[np.float64]]

BATCHES_MIN: Final = 20
"""Fewer batches say too little of the variance between them."""
CORRELATION_MAX: Final = 0.2
"""Of a batch with the next: below it batches count as independent."""
EXACT_MAX: Final = 5000
"""Samples up to which the ranks of an interval come from the binomial distribution itself."""
TREND_POINTS_MAX: Final = 200
"""A test of a trend compares all pairs of so many points at most."""
EXACT_RANKS_MAX: Final = 12
"""Two samples up to this size, without ties, are compared by counting all orders."""
EXACT_PAIRS_MAX: Final = 40
"""Pairs up to this number, without ties, are tested by counting all signs."""
MSER_BATCH: Final = 5
CONFIDENCE: Final = 0.95


class Interval(NamedTuple):
    """A value and where the true one lies.  high: None where the samples do not bound it."""

    value: float
    low: float
    high: float | None

    @property
    def half_width(self) -> float:
        """As a share of the value: the larger side.  Infinite where there is no upper end."""
        if self.high is None:
            return math.inf
        side = max(self.high - self.value, self.value - self.low)
        return side / self.value if self.value > 0 else (0.0 if side == 0 else math.inf)


def normal_quantile(p: float) -> float:
    """Of the standard normal distribution."""
    return NormalDist().inv_cdf(p)


def student_quantile(p: float, freedom: int) -> float:
    """Of Student's t, to three digits from 3 degrees of freedom on (Cornish-Fisher); exact for 1 and 2."""
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z, n = normal_quantile(p), freedom
    terms = (
        z,
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4),
    )
    return sum(terms)


def quantile_ranks(count: int, q: float, confidence: float = CONFIDENCE) -> tuple[int, int | None]:
    """Ranks (1 for the least) between which a quantile lies; no upper one where the samples are too few.

    Of independent samples, whatever their distribution (Hahn and Meeker): the number below the quantile is binomial.
    """
    tail = (1 - confidence) / 2
    if count <= EXACT_MAX:
        below = _binomial(count, q)
        low = int(np.searchsorted(below, tail, side="right"))
        high = int(np.searchsorted(below, 1 - tail)) + 1
    else:
        spread = normal_quantile(1 - tail) * math.sqrt(count * q * (1 - q))
        low, high = math.floor(count * q - spread), math.ceil(count * q + spread) + 1
    return max(low, 1), high if high <= count else None


def _binomial(count: int, q: float) -> Series:
    """The distribution function at 0 to count."""
    if count == 0 or not 0 < q < 1:
        return np.ones(count + 1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    below = np.arange(count + 1)
    logs = factorials[-1] - factorials - factorials[::-1] + below * math.log(q) + (count - below) * math.log1p(-q)
    return np.asarray(np.cumsum(np.exp(logs)), np.float64)


def quantile_interval(
    histogram: Histogram, q: float, pieces: Sequence[Histogram] = (), confidence: float = CONFIDENCE
) -> Interval:
    """A quantile in ns, and where the true one lies.

    pieces: of time, with the same requests; they show how alike neighbours are.
    """
    value, count = float(histogram.quantile(q)), histogram.count
    if count == 0:
        return Interval(0.0, 0.0, None)
    effective = max(int(count / dispersion(pieces, q, value)), 1)
    low, high = quantile_ranks(effective, q, confidence)
    lower = float(histogram.quantile(min(low / effective, 1.0)))
    upper = None if high is None else float(histogram.quantile(min(high / effective, 1.0)))
    return Interval(value, min(lower, value), None if upper is None else max(upper, value))


def dispersion(pieces: Sequence[Histogram], q: float, value: float) -> float:
    """How many times more the share of requests above a value varies by piece than with independent requests.

    1 at least, and where there are too few pieces to tell.
    """
    if len(pieces) < BATCHES_MIN or not 0 < q < 1:
        return 1.0
    totals = np.array([each.count for each in pieces], np.float64)
    above = np.array([each.above(int(value)) for each in pieces], np.float64)
    while len(totals) >= 2 * BATCHES_MIN:
        share = np.divide(above, totals, out=np.zeros_like(above), where=totals > 0)
        if abs(lag_one(share)) <= CORRELATION_MAX and (totals > 0).all():
            break
        totals, above = _paired(totals), _paired(above)
    used = totals > 0
    totals, above = totals[used], above[used]
    if len(totals) < 2 or not 0 < above.sum() < totals.sum():
        return 1.0
    mean = above.sum() / totals.sum()
    squares = totals * (above / totals - mean) ** 2
    return max(float(squares.sum() / ((len(totals) - 1) * mean * (1 - mean))), 1.0)


def _paired(values: Series) -> Series:
    """Neighbours added; an odd one at the start is left out."""
    even = values[len(values) % 2 :]
    return even[0::2] + even[1::2]


def lag_one(series: Series) -> float:
    """The correlation of each value with the next; 0 of a constant."""
    centred = series - series.mean() if len(series) else series
    total = float((centred**2).sum())
    return float((centred[1:] * centred[:-1]).sum()) / total if total > 0 else 0.0


def mean_interval(pieces: Sequence[Histogram], confidence: float = CONFIDENCE) -> Interval:
    """The mean of all durations in ns, of pieces of time whose neighbours may be alike; no upper end below two pieces.

    A ratio, of sums by counts: a slow piece of a closed loop holds fewer requests.  Neighbours are joined until they no
    longer depend on each other, as long as 20 remain.
    """
    used = [each for each in pieces if each.count]
    sums = np.array([each.sum for each in used], np.float64)
    counts = np.array([each.count for each in used], np.float64)
    value = float(sums.sum() / counts.sum()) if used else 0.0
    while len(sums) >= 2 * BATCHES_MIN and abs(lag_one(sums - value * counts)) > CORRELATION_MAX:
        sums, counts = _paired(sums), _paired(counts)
    n = len(sums)
    if n < 2:
        return Interval(value, 0.0, None)
    rest = sums - value * counts
    error = math.sqrt(n / (n - 1) * float((rest**2).sum())) / float(counts.sum())
    half = student_quantile((1 + confidence) / 2, n - 1) * error
    return Interval(value, value - half, value + half)


def warm_up_end(series: Series) -> int | None:
    """How many values at the start belong to the warm-up (MSER-5); None: the series is too short to tell."""
    means = np.asarray(series, np.float64)
    batches = len(means) // MSER_BATCH
    if batches < 4:
        return None
    means = means[: batches * MSER_BATCH].reshape(batches, MSER_BATCH).mean(axis=1)
    left = np.arange(batches, 0, -1)
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum((means**2)[::-1])[::-1]
    scores = (squares - sums**2 / left) / left.astype(np.float64) ** 2
    cut = int(np.argmin(scores[: batches - 1]))  # one batch alone has no variance
    return None if cut > batches // 2 else cut * MSER_BATCH


class Trend(NamedTuple):
    """slope: the median of all pairs' (Sen), per step of the series; p: of Mann and Kendall's test for none."""

    slope: float
    p: float


def trend(series: Series) -> Trend:
    """Whether a series rises or falls."""
    points = np.asarray(series, np.float64)
    step = 1
    while len(points) > TREND_POINTS_MAX:
        points, step = _paired(points) / 2, step * 2
    n = len(points)
    if n < 4:
        return Trend(0.0, 1.0)
    first, second = np.triu_indices(n, 1)
    differences = points[second] - points[first]
    score = float(np.sign(differences).sum())
    _, ties = np.unique(points, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    slope = float(np.median(differences / (second - first))) / step
    if variance <= 0:
        return Trend(slope, 1.0)
    z = max(abs(score) - 1, 0) / math.sqrt(variance)
    return Trend(slope, 2 * (1 - NormalDist().cdf(z)))


def mann_whitney(first: Series, second: Series) -> float:
    """The probability that samples of one distribution differ in their ranks as much as these do (two-sided)."""
    m, n = len(first), len(second)
    if m == 0 or n == 0:
        return 1.0
    both = np.concatenate([first, second]).astype(np.float64)
    values, place, counts = np.unique(both, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[place.reshape(-1)]
    u = float(ranks[:m].sum()) - m * (m + 1) / 2
    if len(values) == m + n and max(m, n) <= EXACT_RANKS_MAX:
        ways = _orders(m, n)
        least = int(min(u, m * n - u))
        return float(min(2 * ways[: least + 1].sum() / ways.sum(), 1.0))
    total = m + n
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / (total * (total - 1)) if total > 1 else 0.0
    variance = m * n / 12 * (total + 1 - ties)
    if variance <= 0:
        return 1.0
    z = max(abs(u - m * n / 2) - 0.5, 0) / math.sqrt(variance)
    return 2 * (1 - NormalDist().cdf(z))


def _orders(m: int, n: int) -> Series:
    """In how many orders of m and n values each U from 0 to m x n comes out."""
    ways = np.zeros((m + 1, n + 1, m * n + 1))
    ways[0, :, 0] = ways[:, 0, 0] = 1
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            ways[i, j] = ways[i, j - 1]
            ways[i, j, j:] += ways[i - 1, j, : m * n + 1 - j]
    return np.asarray(ways[m, n], np.float64)


def signed_rank(first: Series, second: Series) -> float:
    """The probability that pairs of one distribution differ as much as these do (Wilcoxon's, two-sided).

    By the ratio of each pair; pairs that are equal tell nothing.
    """
    used = (first > 0) & (second > 0) & (first != second)
    logs = np.log(second[used] / first[used])
    n = len(logs)
    if n == 0:
        return 1.0
    _, place, counts = np.unique(np.abs(logs), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place.reshape(-1)]
    rises = float(ranks[logs > 0].sum())
    if n <= EXACT_PAIRS_MAX and counts.max() == 1:
        ways = np.ones(1)
        for rank in range(1, n + 1):
            ways = np.concatenate([ways, np.zeros(rank)]) + np.concatenate([np.zeros(rank), ways])
        least = int(min(rises, n * (n + 1) / 2 - rises))
        return float(min(2 * ways[: least + 1].sum() / ways.sum(), 1.0))
    ties = float((counts.astype(np.float64) ** 3 - counts).sum())
    variance = n * (n + 1) * (2 * n + 1) / 24 - ties / 48
    z = max(abs(rises - n * (n + 1) / 4) - 0.5, 0) / math.sqrt(variance)
    return 2 * (1 - NormalDist().cdf(z))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Each corrected for how many there are (Holm), in the same order."""
    order = sorted(range(len(probabilities)), key=lambda at: probabilities[at])
    corrected, last = [0.0] * len(probabilities), 0.0
    for rank, at in enumerate(order):
        last = max(last, min(probabilities[at] * (len(probabilities) - rank), 1.0))
        corrected[at] = last
    return corrected


def bootstrap_ratio(
    first: Series, second: Series, *, paired: bool = False, rounds: int = 2000, seed: int = 1
) -> Interval:
    """Median of the second by that of the first, with the interval of the ratio over drawn-again rounds.

    paired: both were alternated, so it is the median of the rounds' ratios: what the machine did meanwhile cancels out.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if len(first) == 0 or len(second) == 0 or np.median(first) <= 0:
        return Interval(math.nan, 0.0, None)
    if paired and len(first) != len(second):
        raise ValueError(f"{len(first)} rounds cannot be paired with {len(second)}")
    each = second[first > 0] / first[first > 0] if paired else first
    value = float(np.median(each) if paired else np.median(second) / np.median(first))
    if min(len(each), len(second)) < 2:
        return Interval(value, 0.0, None)
    random = np.random.default_rng(seed)
    mine = random.integers(0, len(each), (rounds, len(each)))
    if paired:
        ratios = np.median(each[mine], axis=1)
    else:
        its = random.integers(0, len(second), (rounds, len(second)))
        below = np.median(first[mine], axis=1)
        ratios = np.median(second[its], axis=1)[below > 0] / below[below > 0]
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value, min(float(low), value), max(float(high), value))
