"""Answers held against the source's: within tolerances, or which element is how far off.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Tolerance(NamedTuple):
    """A number may differ by absolute + relative * |the source's|."""

    absolute: float
    relative: float


DEFAULTS: Final = {"fp32": Tolerance(1e-4, 1e-3), "fp16": Tolerance(1e-2, 1e-2)}
"""By precision.  FP16 has 11 bits: one rounding is 5e-4 of the number, and a network rounds many times."""


@dataclass
class Difference:
    """Of all answers that were compared.  wrong: the first that is outside of the tolerances, one sentence, or ""."""

    absolute: float = 0.0
    relative: float = 0.0
    wrong: str = ""

    def add(self, output: str, where: str, wanted: Array, found: Array, tolerance: Tolerance) -> None:
        """Compare one output of one request.  where: the request, for people."""
        if wanted.size != found.size or _without_ones(wanted.shape) != _without_ones(found.shape):
            said = f"its shape is {list(found.shape)} and not {list(wanted.shape)}"
        elif wanted.dtype.kind == "f" and found.dtype.kind in "fiub":
            said = self._numbers(wanted, found.reshape(wanted.shape), tolerance)
        else:
            said = self._exact(wanted, found.reshape(wanted.shape))
        if said and not self.wrong:
            self.wrong = f"output '{output}' of {where}: {said}"

    def _numbers(self, wanted: Array, found: Array, tolerance: Tolerance) -> str:
        a, b = wanted.astype(np.float64), found.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        alike = (a == b) | (np.isnan(a) & np.isnan(b))
        size = np.abs(np.where(finite, a, 0.0))
        apart = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
        self.absolute = max(self.absolute, float(apart.max(initial=0.0)))
        shares = apart[size > tolerance.absolute] / size[size > tolerance.absolute]
        self.relative = max(self.relative, float(shares.max(initial=0.0)))
        off = ~alike & (~finite | (apart > tolerance.absolute + tolerance.relative * size))
        if not off.any():
            return ""
        worst = np.unravel_index(int(np.argmax(np.where(off, np.where(finite, apart, np.inf), -1.0))), a.shape)
        place = [int(each) for each in worst]
        return (
            f"{int(off.sum())} of {a.size} elements differ by more than {tolerance.absolute:g} + "
            f"{tolerance.relative:g} * |x|: at {place} it is {b[worst]:.6g} and not {a[worst]:.6g}"
        )

    def _exact(self, wanted: Array, found: Array) -> str:
        a, b = (np.array([_text(x) for x in each.ravel().tolist()], object) for each in (wanted, found))
        off = np.flatnonzero(a != b)
        if not off.size:
            return ""
        first = int(off[0])
        return f"{off.size} of {a.size} elements are not the same: element {first} is {b[first]!r:.60} and not " + (
            f"{a[first]!r:.60}"
        )


def _text(element: object) -> object:
    return element.decode("utf-8", "replace") if isinstance(element, bytes) else element


def _without_ones(shape: Sequence[int]) -> list[int]:
    """Which some formats leave out."""
    return [each for each in shape if each != 1]
