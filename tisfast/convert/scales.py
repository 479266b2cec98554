"""How large an output's numbers are: what a difference is measured by.  numpy alone.  Layer 5 (convert).

Rounding follows the size of what is added up, and not the sum: a product of 512 numbers that comes out near 0 is off
by as much as one that comes out large.  That size is seen in the numbers beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tisfast import limits

Array = NDArray[Any]

LEAST_SHARE: Final = 0.1
"""Of the largest number: the least that a scale is.  Of an output that is nearly always 0 the mean tells too little."""
SHARES_WITHIN: Final = 1e-2
"""Scores whose sum is so near to 1 are shares of one whole, and have one scale."""


class Scales(NamedTuple):
    """Of one output.

    each: one of all its numbers, or one for each place of an axis, as each place may have a unit of its own; 0 where
    all numbers are.  axis: that axis, from the end.
    """

    each: tuple[float, ...]
    axis: int = -1

    def known(self) -> float | Array:
        """What numbers are measured by, never 0; it broadcasts with the output.

        Of a place with nothing but zeros no unit is known: it has the largest scale of all, but 1 at most.
        """
        unknown = min(max(self.each) or 1.0, 1.0)
        found = [each or unknown for each in self.each]
        return np.reshape(found, (-1,) + (1,) * (-1 - self.axis)) if len(found) > 1 else found[0]


def scales_of(arrays: Sequence[Array], dims: Sequence[int]) -> Scales:
    """Of an output, from all answers.  dims: its whole shape, -1: any size.  Shares of one whole have one unit."""
    numbers = [each for each in arrays if each.dtype.kind == "f"]
    axis = _axis_of_units(dims)
    if axis and all(each.ndim == len(dims) and each.shape[axis] == dims[axis] for each in numbers):
        tables = [np.moveaxis(each, axis, -1).reshape(-1, dims[axis]) for each in numbers]
        if _are_several(tables) and not all(map(_are_shares, tables)):
            return Scales(_scales(tables, dims[axis]), axis)
    return Scales(_scales([each.reshape(-1, 1) for each in numbers], 1))


def _axis_of_units(dims: Sequence[int]) -> int:
    """From the end: the last one where it has a few places, else of three and more the shortest but the first; 0: none.

    So are columns of a table, and boxes beside scores, [N, 84, 8400] or [N, 25200, 85].
    """
    if len(dims) > 1 and 1 < dims[-1] <= limits.CONVERT_COLUMNS_MAX:
        return -1
    places = {at: dims[at] for at in range(-1, -len(dims), -1) if 1 < dims[at] <= limits.CONVERT_PLACES_MAX}
    return min(places, key=lambda at: places[at], default=0) if len(dims) > 2 else 0


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
    """Of each of so many columns: the root of the mean square of its finite numbers, LEAST_SHARE of the largest least.

    Not the largest itself: one sure score near 1 says little of the thousand others.
    """
    largest, total, count = np.zeros(size), np.zeros(size), np.zeros(size)
    for each in tables:
        largest = np.maximum(largest, np.abs(_finite(each)).max(axis=0, initial=0.0))
    unit = np.where(largest > 0, largest, 1.0)  # so that squares neither over- nor underflow
    for each in tables:
        total += ((_finite(each) / unit) ** 2).sum(axis=0)
        count += np.isfinite(each).sum(axis=0)
    return tuple((largest * np.maximum(np.sqrt(total / np.maximum(count, 1)), LEAST_SHARE)).tolist())


def _finite(table: Array) -> Array:
    return np.where(np.isfinite(table), table, 0).astype(np.float64)
