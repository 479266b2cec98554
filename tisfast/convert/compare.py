"""Answers held against the source's: within tolerances, or which element is how far off.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tisfast import limits

Array = NDArray[Any]


class Tolerance(NamedTuple):
    """A number may differ by absolute + relative * |the source's|.

    scaled: absolute is a share of the output's own scale, where that is below 1: one threshold for all outputs would
    take zeros in place of an output whose numbers are all small, as the scores of a thousand classes are.  absolute:
    of `of`, one for each position of the last axis where each has a scale of its own.
    """

    absolute: float | Array
    relative: float
    scaled: bool = False

    def of(self, scales: Sequence[float], least: float = 0.0) -> Tolerance:
        """Of an output of these scales: see `scales_of`.  A position with nothing but zeros has the largest scale.

        least: share of the largest scale that each of them has.
        """
        if not self.scaled:
            return self
        most = max(scales) or 1.0
        own = [min(max(each, least * most) or most, 1.0) for each in scales]
        return self._replace(absolute=self.absolute * (np.array(own) if len(own) > 1 else own[0]), scaled=False)


DEFAULTS: Final = {"fp32": Tolerance(1e-4, 1e-3, scaled=True), "fp16": Tolerance(1e-2, 1e-2, scaled=True)}
"""By precision.  FP16 has 11 bits: one rounding is 5e-4 of the number, and a network rounds many times."""
LEAST_SHARE: Final = 1e-3
"""Of the largest scale in FP32: a position that is all rounding of the others (1e-7 of them) is no number to compare.

In FP16 there is none, as FP32 is there for what is that small.
"""
SHARES_WITHIN: Final = 1e-2
"""Scores whose sum is so near to 1 are shares of one whole, and have one scale."""
HALF: Final = np.dtype(np.float16)


def tolerance_of(precision: str, atol: float | None, rtol: float | None) -> Tolerance:
    """What a user says, else the precision's.  An atol that is said is taken as it is."""
    found = DEFAULTS[precision]
    if atol is not None:
        found = found._replace(absolute=atol, scaled=False)
    return found if rtol is None else found._replace(relative=rtol)


def output_tolerance(
    precision: str, answer: Array, scales: Sequence[float], atol: float | None, rtol: float | None
) -> Tolerance:
    """Of one output.  FP16's where the source's own answer is FP16, as such numbers are known no better."""
    half = answer.dtype == HALF
    own = tolerance_of("fp16" if half else precision, atol, rtol)
    return own.of(scales, LEAST_SHARE if half or precision == "fp32" else 0.0)


def scale_of(arrays: Iterable[Array]) -> float:
    """The root of the mean square of an output's finite numbers in all answers; 0 where there are none but zeros.

    Not the largest number: that of one sure score is near 1, and says nothing of all others.
    """
    (found,) = _scales([each.reshape(-1, 1) for each in arrays if each.dtype.kind == "f"], 1)
    return found


def scales_of(arrays: Sequence[Array], dims: Sequence[int]) -> tuple[float, ...]:
    """One scale for each position of the last axis where it has a few, as each may have its own unit; else one of all.

    dims: the output's whole shape, -1: any size.  Shares of one whole have one unit.
    """
    numbers = [each for each in arrays if each.dtype.kind == "f"]
    size = dims[-1] if len(dims) > 1 else 0
    few = 1 < size <= limits.CONVERT_COLUMNS_MAX and all(each.shape[-1:] == (size,) for each in numbers)
    tables = [each.reshape(-1, size) for each in numbers] if few else []
    if not _are_several(tables) or all(map(_are_shares, tables)):
        return (scale_of(numbers),)
    return _scales(tables, size)


def _are_several(tables: Iterable[Array]) -> bool:
    """Whether enough rows differ from each other to tell a scale."""
    seen: set[bytes] = set()
    rows = (row for table in tables for row in table)
    for row in islice(rows, limits.CONVERT_SCALE_ROWS_READ):
        seen.add(row.tobytes())
    return len(seen) >= limits.CONVERT_SCALE_ROWS_MIN


def _are_shares(table: Array) -> bool:
    """Whether each row has nothing below 0 and a sum of 1."""
    return bool((table >= 0).all() and (np.abs(table.sum(axis=1, dtype=np.float64) - 1) <= SHARES_WITHIN).all())


def _scales(tables: Sequence[Array], size: int) -> tuple[float, ...]:
    """Of each of so many columns."""
    largest, total, count = np.zeros(size), np.zeros(size), np.zeros(size)
    for each in tables:
        largest = np.maximum(largest, np.abs(_finite(each)).max(axis=0, initial=0.0))
    unit = np.where(largest > 0, largest, 1.0)  # so that squares neither over- nor underflow
    for each in tables:
        total += ((_finite(each) / unit) ** 2).sum(axis=0)
        count += np.isfinite(each).sum(axis=0)
    return tuple((largest * np.sqrt(total / np.maximum(count, 1))).tolist())


def _finite(table: Array) -> Array:
    return np.where(np.isfinite(table), table, 0).astype(np.float64)


@dataclass
class Difference:
    """Of all answers that were compared.

    absolute, relative: the largest, None where no numbers were compared; infinite where one of two is infinity or NaN.
    wrong: the first that is outside of the tolerances, one sentence, or "".
    """

    absolute: float | None = None
    relative: float | None = None
    wrong: str = ""

    def add(self, output: str, where: str, wanted: Array, found: Array, tolerance: Tolerance) -> None:
        """Compare one output of one request.  where: the request, for people."""
        if not shapes_alike(wanted.shape, found.shape):
            said = f"its shape is {list(found.shape)} and not {list(wanted.shape)}"
        elif wanted.dtype.kind == "f" and found.dtype.kind in "fiub":
            said = self._numbers(wanted, found.reshape(wanted.shape), tolerance)
        else:
            said = self._exact(wanted, found.reshape(wanted.shape))
        if said and not self.wrong:
            self.wrong = f"output '{output}' of {where}: {said}"

    def _numbers(self, wanted: Array, found: Array, tolerance: Tolerance) -> str:
        a, b = wanted.astype(np.float64), found.astype(np.float64)
        alike = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        size = np.abs(np.where(finite, a, 0.0))
        apart = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
        apart = np.where(alike, 0.0, np.where(finite, apart, np.inf))
        self.absolute = _larger(self.absolute, apart)
        absolute = np.broadcast_to(tolerance.absolute, a.shape)
        counted = (size > absolute) | ~finite
        with np.errstate(divide="ignore"):
            self.relative = _larger(self.relative, apart[counted] / np.where(finite, size, 1.0)[counted])
        off = ~alike & (apart > absolute + tolerance.relative * size)
        if not off.any():
            return ""
        with np.errstate(divide="ignore", invalid="ignore"):  # of what may differ by nothing at all
            far = apart / (absolute + tolerance.relative * size)
        worst = np.unravel_index(int(np.argmax(np.where(off, far, -1.0))), a.shape)
        place = [int(each) for each in worst]
        return (
            f"{int(off.sum())} of {a.size} elements differ by more than {absolute[worst]:.3g} + "
            f"{tolerance.relative:.3g} * |x|: at {place} it is {b[worst]:.6g} and not {a[worst]:.6g}"
        )

    def _exact(self, wanted: Array, found: Array) -> str:
        if wanted.dtype.kind in "iub" and found.dtype.kind in "iubf":
            self.absolute = _larger(self.absolute, _apart(wanted, found))
        a, b = (np.array([_bytes(x) for x in each.ravel().tolist()], object) for each in (wanted, found))
        off = np.flatnonzero(a != b)
        if not off.size:
            return ""
        first = int(off[0])
        return f"{off.size} of {a.size} elements are not the same: element {first} is {_told(b[first])} and not " + (
            _told(a[first])
        )


def rows_apart(
    answers: Sequence[Mapping[str, Array]],
    alone: Mapping[int, Sequence[int]],
    dims: Mapping[str, Sequence[int]],
    atol: float | None,
    rtol: float | None,
) -> str:
    """Where a batch is not answered as its rows alone are, one sentence; "" where it is.

    answers: to all requests; alone: for each request that is a batch, by its number, the requests that have its rows;
    dims: the outputs' whole shapes; atol, rtol: the user's; None: as the output's type asks.
    """
    scales = {name: scales_of([each[name] for each in answers], shape) for name, shape in dims.items()}
    seen = Difference()
    for at, singles in alone.items():
        for name in dims:
            batch, rows = answers[at][name], [answers[each][name] for each in singles]
            own = output_tolerance("fp32", batch, scales[name], atol, rtol)
            where = f"a batch of {len(rows)}"
            if any(each.shape != rows[0].shape for each in rows):
                return f"output '{name}' of {where}: its rows alone have several shapes"
            seen.add(name, where, np.concatenate(rows), batch, own)
    return seen.wrong


def shapes_alike(wanted: Sequence[int], found: Sequence[int]) -> bool:
    """Equal, but for ones in front, or for the one of scalars: a server sends each row's scalar as a tensor of one."""
    a, b = tuple(wanted), tuple(found)
    if min(len(a), len(b)) <= 1 and (b == (*a, 1) or a == (*b, 1)):
        return True
    while a[:1] == (1,) and len(a) > len(b):
        a = a[1:]
    while b[:1] == (1,) and len(b) > len(a):
        b = b[1:]
    return a == b


def _apart(wanted: Array, found: Array) -> Array:
    """How far numbers are apart, of which the first are whole: exactly, as FP64 holds such up to 2^53 alone."""
    common = np.result_type(wanted, found)  # FP64 of UINT64 and a signed one, as no type of numpy holds both
    if common.kind == "f":
        apart = np.abs(wanted.astype(np.float64) - found.astype(np.float64))
        return np.where(np.isnan(apart), np.inf, apart)
    a, b = wanted.astype(common), found.astype(common)
    most, least = (each.astype(np.uint64) for each in (np.maximum(a, b), np.minimum(a, b)))
    exact: Array = np.subtract(most, least)  # modulo 2^64, and below it
    return exact


def _larger(most: float | None, numbers: Array) -> float | None:
    """The largest so far; None where there has been no number."""
    return most if not numbers.size else max(most or 0.0, float(numbers.max()))


def _bytes(element: object) -> object:
    """Texts as they are sent: two that are not UTF-8 would look alike."""
    return element.encode("utf-8", "surrogateescape") if isinstance(element, str) else element


def _told(element: object) -> str:
    if isinstance(element, bytes):
        with suppress(UnicodeDecodeError):
            element = element.decode()
    return f"{element!r:.60}"
