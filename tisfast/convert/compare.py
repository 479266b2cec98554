"""Answers held against the source's: within tolerances, or which element is how far off.  Layer 5 (convert)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Tolerance(NamedTuple):
    """A number may differ by absolute + relative * |the source's|.

    scaled: absolute is a share of the output's own scale, where that is below 1: one threshold for all outputs would
    take zeros in place of an output whose numbers are all small, as the scores of a thousand classes are.
    """

    absolute: float
    relative: float
    scaled: bool = False

    def of(self, scale: float) -> Tolerance:
        """Of an output of this scale: see `scale_of`."""
        return self._replace(absolute=self.absolute * min(scale, 1.0), scaled=False) if self.scaled else self


DEFAULTS: Final = {"fp32": Tolerance(1e-4, 1e-3, scaled=True), "fp16": Tolerance(1e-2, 1e-2, scaled=True)}
"""By precision.  FP16 has 11 bits: one rounding is 5e-4 of the number, and a network rounds many times."""
HALF: Final = np.dtype(np.float16)


def tolerance_of(precision: str, atol: float | None, rtol: float | None) -> Tolerance:
    """What a user says, else the precision's.  An atol that is said is taken as it is."""
    found = DEFAULTS[precision]
    if atol is not None:
        found = found._replace(absolute=atol, scaled=False)
    return found if rtol is None else found._replace(relative=rtol)


def scale_of(arrays: Iterable[Array]) -> float:
    """The root of the mean square of an output's finite numbers in all answers; 0 where there are none but zeros.

    Not the largest number: that of one sure score is near 1, and says nothing of all others.
    """
    finite = [_finite(each) for each in arrays if each.dtype.kind == "f"]
    largest = max((float(np.abs(each).max(initial=0.0)) for each in finite), default=0.0)
    if not largest:
        return 0.0
    total = sum(float(((each / largest) ** 2).sum()) for each in finite)  # whose squares neither over- nor underflow
    return largest * math.sqrt(total / sum(each.size for each in finite))


def _finite(array: Array) -> Array:
    numbers = array.astype(np.float64)
    return numbers[np.isfinite(numbers)]


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
        counted = (size > tolerance.absolute) | ~finite
        with np.errstate(divide="ignore"):
            self.relative = _larger(self.relative, apart[counted] / np.where(finite, size, 1.0)[counted])
        off = ~alike & (apart > tolerance.absolute + tolerance.relative * size)
        if not off.any():
            return ""
        worst = np.unravel_index(int(np.argmax(np.where(off, apart, -1.0))), a.shape)
        place = [int(each) for each in worst]
        return (
            f"{int(off.sum())} of {a.size} elements differ by more than {tolerance.absolute:.3g} + "
            f"{tolerance.relative:.3g} * |x|: at {place} it is {b[worst]:.6g} and not {a[worst]:.6g}"
        )

    def _exact(self, wanted: Array, found: Array) -> str:
        if wanted.dtype.kind in "iub" and found.dtype.kind in "iubf":
            apart = np.abs(wanted.astype(np.float64) - found.astype(np.float64))
            self.absolute = _larger(self.absolute, np.where(np.isnan(apart), np.inf, apart))
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
    names: Sequence[str],
    atol: float | None,
    rtol: float | None,
) -> str:
    """Where a batch is not answered as its rows alone are, one sentence; "" where it is.

    answers: to all requests; alone: for each request that is a batch, by its number, the requests that have its rows;
    atol, rtol: the user's; None: as the output's type asks.
    """
    scales = {name: scale_of(each[name] for each in answers) for name in names}
    seen = Difference()
    for at, singles in alone.items():
        for name in names:
            batch, rows = answers[at][name], [answers[each][name] for each in singles]
            own = tolerance_of("fp16" if batch.dtype == HALF else "fp32", atol, rtol)
            where = f"a batch of {len(rows)}"
            if any(each.shape != rows[0].shape for each in rows):
                return f"output '{name}' of {where}: its rows alone have several shapes"
            seen.add(name, where, np.concatenate(rows), batch, own.of(scales[name] or 1.0))
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
