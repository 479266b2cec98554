"""Every deliberate difference between tisfast and Triton 2.51, with its reason: the one table.

A case that is not here must be answered alike (alike.py says what that means).  A case that is here must differ, and both
answers must be, in brief, exactly as written.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Deliberate(NamedTuple):
    """Why some cases are answered otherwise; by case: Triton's answer and tisfast's, as alike.brief writes them."""

    row: str
    reason: str
    cases: dict[str, tuple[str, str]]


TABLE: Final[list[Deliberate]] = []

BY_CASE: Final[dict[str, tuple[str, str]]] = {name: pair for each in TABLE for name, pair in each.cases.items()}
