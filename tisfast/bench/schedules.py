"""Intended times of open loops, and how many requests a closed loop has in flight.  Layer 5 (bench).

An intended time is made once and never moves: a request that leaves late has waited since then.  Each schedule gives
the times of the next seconds (`take`), in ns from its start, ascending; the same seed gives the same times, however it
is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from tisfast.bench.json_file import read_bytes
from tisfast.bench.number_flags import is_whole
from tisfast.errors import BadRequest

Times = np.ndarray[Any, np.dtype[np.int64]]
SECOND_NS: Final = 1e9
DRAWN: Final = 1024
"""Gaps that are drawn at one time, so that what is drawn does not depend on how it is asked."""
INTERVALS_MAX: Final = 10_000_000
"""Lines of a file of intervals."""
INTERVALS_BYTES_MAX: Final = 20 * INTERVALS_MAX
INTERVAL_US_MAX: Final = 86_400_000_000
"""Of one interval: a day."""


class Pacing(Protocol):
    """The intended times of an open loop."""

    def take(self, seconds: float, /) -> Times:
        """Those of the next so many seconds, ns from the start; empty when there are no further ones."""


class Constant:
    """A request each 1/rate seconds; the first one at once."""

    def __init__(self, rate: float) -> None:
        self._rate, self._seconds, self._given = _positive(rate), 0.0, 0

    def take(self, seconds: float, /) -> Times:
        """Those of the next so many seconds."""
        self._seconds += seconds
        end = max(math.ceil(self._seconds * self._rate - 1e-9), self._given)
        times = np.arange(self._given, end) * (SECOND_NS / self._rate)
        self._given = end
        return times.astype(np.int64)


class _Drawn:
    """Times that are made in pieces, of which a rest may be kept."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._rest = np.empty(0)
        self._last = 0.0

    def _more(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Further times in seconds, ascending."""
        raise NotImplementedError

    def take(self, seconds: float, /) -> Times:
        """Those of the next so many seconds."""
        self._seconds += seconds
        pieces = [self._rest]
        while self._last < self._seconds:
            piece = self._more()
            self._last = float(piece[-1])
            pieces.append(piece)
        times = np.concatenate(pieces)
        known = int(np.searchsorted(times, self._seconds))
        self._rest = times[known:]
        return (times[:known] * SECOND_NS).astype(np.int64)


class Poisson(_Drawn):
    """Exponential gaps of mean 1/rate: users who do not know of each other."""

    def __init__(self, rate: float, seed: int) -> None:
        super().__init__()
        self._mean, self._random = 1 / _positive(rate), np.random.default_rng(seed)

    def _more(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self._last + np.cumsum(self._random.exponential(self._mean, DRAWN))


class Ramp:
    """The rate goes evenly from one to another within some seconds, and stays there."""

    def __init__(self, start: float, end: float, seconds: float) -> None:
        if start < 0 or end <= 0 or seconds <= 0:
            raise BadRequest(
                f"a ramp from {start:g} to {end:g} requests/s in {seconds:g} s: the end and its seconds must be > 0"
            )
        self._start, self._slope, self._ramp = start, (end - start) / seconds, seconds
        self._end, self._seconds, self._given = end, 0.0, 0

    def take(self, seconds: float, /) -> Times:
        """Those of the next so many seconds."""
        self._seconds += seconds
        end = max(math.ceil(self._due(self._seconds) - 1e-9), self._given)
        numbers = np.arange(self._given, end, dtype=np.float64)
        self._given = end
        return (self._when(numbers) * SECOND_NS).astype(np.int64)

    def _due(self, seconds: float) -> float:
        """How many requests are due before this time."""
        ramped = min(seconds, self._ramp)
        return self._start * ramped + self._slope * ramped**2 / 2 + self._end * max(seconds - self._ramp, 0)

    def _when(self, numbers: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        ramped = self._due(self._ramp)
        within = np.minimum(numbers, ramped)
        # The root of slope x^2 / 2 + start x - n, in the form that holds for a slope of 0, too.
        root = np.sqrt(np.maximum(self._start**2 + 2 * self._slope * within, 0))
        below = self._start + root
        times: np.ndarray[Any, np.dtype[np.float64]] = np.zeros_like(within)
        np.divide(2 * within, below, out=times, where=below > 0)
        times += np.maximum(numbers - ramped, 0) / self._end
        return times


class Intervals(_Drawn):
    """Gaps of a file, over and over."""

    def __init__(self, gaps_us: Times) -> None:
        super().__init__()
        if len(gaps_us) == 0 or gaps_us.sum() <= 0:
            raise BadRequest("the intervals between requests are all 0 or there are none: write at least one above 0")
        rounds = max(DRAWN // len(gaps_us), 1)
        self._ends = np.cumsum(np.tile(gaps_us, rounds)) / 1e6

    @property
    def rate(self) -> float:
        """Requests a second, in the long run."""
        return len(self._ends) / float(self._ends[-1])

    def _more(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        times: np.ndarray[Any, np.dtype[np.float64]] = self._last + self._ends
        return times


class Fixed:
    """Given times, once."""

    def __init__(self, seconds: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        times = np.asarray(seconds, np.float64)
        if not np.isfinite(times).all() or (times < 0).any():
            raise BadRequest("a fixed schedule has a time below 0, or one that is no number")
        self._times, self._seconds, self._given = np.sort(times), 0.0, 0

    def take(self, seconds: float, /) -> Times:
        """Those of the next so many seconds."""
        self._seconds += seconds
        end = int(np.searchsorted(self._times, self._seconds))
        times = self._times[self._given : end]
        self._given = end
        return (times * SECOND_NS).astype(np.int64)


def read_intervals(path: str) -> Times:
    """The file of --request-intervals: a whole number of microseconds on each line.  Raises BadRequest."""
    hint = "write one whole number of microseconds on each line"
    try:
        text = read_bytes(path, INTERVALS_BYTES_MAX).decode("ascii")
    except OSError as error:
        raise BadRequest(f"--request-intervals {path}: the file cannot be read ({error.strerror}); {hint}") from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"--request-intervals {path}: byte {error.start} of the file is no ASCII; {hint}") from None
    if len(text) > INTERVALS_BYTES_MAX:
        raise BadRequest(f"--request-intervals {path}: the file has more than {INTERVALS_BYTES_MAX} bytes; cut it")
    gaps = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if not word:
            continue
        if not is_whole(word) or int(word) > INTERVAL_US_MAX:
            raise BadRequest(
                f"--request-intervals {path}: line {number} is {word!r:.40}, and must be a number from 0 to "
                f"{INTERVAL_US_MAX}; {hint}"
            )
        gaps.append(int(word))
        if len(gaps) > INTERVALS_MAX:
            raise BadRequest(f"--request-intervals {path}: the file has more than {INTERVALS_MAX} lines; cut it")
    if not any(gaps):
        raise BadRequest(f"--request-intervals {path}: the file has no interval above 0; {hint}")
    return np.array(gaps, np.int64)


@dataclass(frozen=True)
class Periodic:
    """More requests join when all that are present have had some responses.  period: of those responses."""

    start: int
    end: int
    step: int
    period: int

    def __post_init__(self) -> None:
        """Raises BadRequest."""
        if min(self.start, self.step, self.period) < 1 or self.end < self.start:
            raise BadRequest(
                f"--periodic-concurrency-range {self.start}:{self.end}:{self.step}, --request-period {self.period}: "
                "all must be 1 or more, and the end not below the start"
            )
        if (self.end - self.start) % self.step:
            raise BadRequest(
                f"--periodic-concurrency-range {self.start}:{self.end}:{self.step}: from {self.start} to {self.end} "
                f"there is no whole number of steps of {self.step}"
            )

    def levels(self) -> Iterator[int]:
        """How many are in flight, one number for each step."""
        yield from range(self.start, self.end + 1, self.step)


def _positive(rate: float) -> float:
    if not (rate > 0 and math.isfinite(rate)):
        raise BadRequest(f"a request rate of {rate:g} requests/s: it must be above 0")
    return rate
