"""Every deliberate difference between tisfast and Triton 2.51, with its reason: the one table.

A case that is not here must be answered alike (alike.py says what that means).  A case that is here must differ exactly
as written: path to (Triton's, tisfast's).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.oracle.alike import Difference


class Deliberate(NamedTuple):
    """Why one case is answered otherwise, and how."""

    row: str
    reason: str
    facts: Difference


DIFFERENCES: Final[dict[str, Deliberate]] = {}
