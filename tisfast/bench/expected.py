"""Whether an answer is the expected one, within tolerances.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tisfast.client.arrays import Array, array_of
from tisfast.errors import TisError
from tisfast.wire.client_response import InferResponse


class Tolerance(NamedTuple):
    """|answer - expected| <= atol + rtol x |expected|, for floats.  Both 0: bit for bit, but -0 equals 0."""

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True)
class Expected:
    """Outputs by name, with the batch's dimension."""

    outputs: Mapping[str, tuple[Array, Tolerance]]

    def __call__(self, response: InferResponse) -> str:
        """What is wrong with an answer, or ""."""
        got = {output.name: output for output in response.outputs}
        for name, (expected, tolerance) in self.outputs.items():
            if name not in got:
                return f"Output '{name}' is expected, and the answer has {', '.join(got) or 'no outputs'}"
            try:
                array = array_of(got[name])
            except TisError as error:
                return error.message
            wrong = difference(name, expected, array, tolerance)
            if wrong:
                return wrong
        return ""


def difference(name: str, expected: Array, got: Array, tolerance: Tolerance) -> str:
    """The first element that differs, in words, or ""."""
    if got.size != expected.size:
        return (
            f"Output size doesn't match expected size: '{name}' has the shape {list(got.shape)}, and "
            f"{list(expected.shape)} is expected"
        )
    want, have = expected.ravel(), got.ravel()
    if want.dtype.kind == "f" and have.dtype.kind == "f":
        far = ~np.isclose(have, want, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
    else:
        far = np.asarray(have != want, np.bool_)
    places = np.flatnonzero(far)
    if len(places) == 0:
        return ""
    first = int(places[0])
    at = [int(each) for each in np.unravel_index(first, expected.shape)]
    return (
        f"Output doesn't match expected output: '{name}' at {at} is {_shown(have[first])}, and {_shown(want[first])} "
        f"is expected; {len(places)} of {have.size} elements differ by more than "
        f"rtol {tolerance.rtol:g}, atol {tolerance.atol:g}"
    )


def _shown(value: object) -> str:
    return repr(value)[:60] if isinstance(value, bytes) else f"{value}"
