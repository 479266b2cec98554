"""Answers held against the source's: within tolerances, or which element is how far off.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tisfast.convert.scales import Scales, scales_of

Array = NDArray[Any]


class Tolerance(NamedTuple):
    """A number may differ by absolute + relative * |the source's|.

    scaled: absolute is a share of the number's scale (see `scales`), else it is what a user has said.
    """

    absolute: float
    relative: float
    scaled: bool = False

    def of(self, scales: Scales) -> Allowed:
        """Of an output of these scales."""
        scale = scales.known()
        return Allowed(self.absolute * scale if self.scaled else self.absolute, self.relative, scale)


class Allowed(NamedTuple):
    """What `Tolerance` allows in one output.

    absolute, scale: of all its numbers, or an array that broadcasts with it.
    """

    absolute: float | Array
    relative: float
    scale: float | Array = 1.0


DEFAULTS: Final = {"fp32": Tolerance(1e-4, 1e-3, scaled=True), "fp16": Tolerance(1e-2, 1e-2, scaled=True)}
"""By precision.  One rounding is 6e-8 of a number in FP32, and 5e-4 in FP16; sums and layers have many of them."""
HALF: Final = np.dtype(np.float16)


def tolerance_of(precision: str, atol: float | None, rtol: float | None) -> Tolerance:
    """What a user says, else the precision's.  An atol that is said is taken as it is."""
    found = DEFAULTS[precision]
    if atol is not None:
        found = found._replace(absolute=atol, scaled=False)
    return found if rtol is None else found._replace(relative=rtol)


def allowed(precision: str, answer: Array, scales: Scales, atol: float | None, rtol: float | None) -> Allowed:
    """In one output.  As in FP16 where the source's own answer is FP16, as such numbers are known no better."""
    return tolerance_of("fp16" if answer.dtype == HALF else precision, atol, rtol).of(scales)


@dataclass
class Difference:
    """Of all answers that were compared.

    absolute: the largest, None where no numbers were compared; infinite where one of two is infinity or NaN.
    relative: the largest by the number's own measure: its size, or its scale where that is more; place: where that is,
    for people.  wrong: the first that is outside of the tolerances, one sentence, or "".
    """

    absolute: float | None = None
    relative: float | None = None
    place: str = ""
    wrong: str = ""

    def add(self, output: str, where: str, wanted: Array, found: Array, tolerance: Allowed) -> None:
        """Compare one output of one request.  where: the request, for people."""
        if not shapes_alike(wanted.shape, found.shape):
            said = f"its shape is {list(found.shape)} and not {list(wanted.shape)}"
        elif wanted.dtype.kind == "f" and found.dtype.kind in "fiub":
            said = self._numbers(output, wanted, found.reshape(wanted.shape), tolerance)
        else:
            said = self._exact(wanted, found.reshape(wanted.shape))
        if said and not self.wrong:
            self.wrong = f"output '{output}' of {where}: {said}"

    def _numbers(self, output: str, wanted: Array, found: Array, tolerance: Allowed) -> str:
        a, b = wanted.astype(np.float64), found.astype(np.float64)
        alike = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        size = np.abs(np.where(finite, a, 0.0))
        apart = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
        apart = np.where(alike, 0.0, np.where(finite, apart, np.inf))
        self.absolute = _larger(self.absolute, apart[finite | ~alike])
        if (finite | ~alike).any():
            share = apart / np.maximum(size, tolerance.scale)
            worst = np.unravel_index(int(np.argmax(share)), a.shape)
            if self.relative is None or share[worst] > self.relative:
                self.relative = float(share[worst])
                self.place = _place(output, worst, tolerance.scale) if self.relative else ""
        absolute = np.broadcast_to(tolerance.absolute, a.shape)
        off = ~alike & (apart > absolute + tolerance.relative * size)
        if not off.any():
            return ""
        with np.errstate(divide="ignore", invalid="ignore"):  # of what may differ by nothing at all
            far = apart / (absolute + tolerance.relative * size)
        worst = np.unravel_index(int(np.argmax(np.where(off, far, -1.0))), a.shape)
        place, scale = [int(each) for each in worst], np.broadcast_to(tolerance.scale, a.shape)
        return (
            f"{int(off.sum())} of {a.size} elements differ by more than {absolute[worst]:.3g} + "
            f"{tolerance.relative:.3g} * |x|: at {place}, where numbers are of size {scale[worst]:.3g}, it is "
            f"{b[worst]:.6g} and not {a[worst]:.6g}"
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
            own = allowed("fp32", batch, scales[name], atol, rtol)
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


def _place(output: str, at: tuple[Any, ...], scale: float | Array) -> str:
    """Of the worst number: its output, and which of several scales it has."""
    if isinstance(scale, float):
        return f"'{output}'"
    axis = -scale.ndim
    return f"'{output}' at [{', '.join(['...', str(int(at[axis])), *[':'] * (-1 - axis)])}]"


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
