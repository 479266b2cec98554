"""Requests of several models in one load: which one follows, and which model each is of.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Order = np.ndarray[Any, np.dtype[np.uint32]]
Numbers = np.ndarray[Any, np.dtype[np.uint16]]
DRAWN: Final = 65536
"""Requests whose models are drawn; behind them the same order comes again."""
DRAWN_MAX: Final = 4_000_000
"""Where a rare model has many steps, so many are drawn that each of them comes, but no more."""


@dataclass(frozen=True)
class Mixture:
    """names: of the models; models: of each template the number of its model; order: of templates, over and over."""

    names: Sequence[str]
    models: Numbers
    order: Order

    def firsts(self) -> Mixture:
        """One request of each model."""
        _, first = np.unique(self.models, return_index=True)
        return Mixture(self.names, self.models, first.astype(np.uint32))

    def told(self, model: int, text: str) -> str:
        """An error's text, which says whose it is."""
        return f"{self.names[model]}: {text}"

    def errors_of(self, model: int, by_text: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """Those of a model, without its name."""
        begin = self.told(model, "")
        return {
            (status, text.removeprefix(begin)): count
            for (status, text), count in by_text.items()
            if text.startswith(begin)
        }


def drawn(steps: Sequence[int], weights: Sequence[float], seed: int) -> tuple[Numbers, Order]:
    """Which model's turn it is is drawn by weights; the steps of each model come in turn.

    steps: templates of each model, which lie behind each other; weights: above 0.
    """
    shares = np.asarray(weights, np.float64) / sum(weights)
    count = min(max(DRAWN, *(int(1.2 * n / share) for n, share in zip(steps, shares, strict=True))), DRAWN_MAX)
    chosen = np.random.default_rng(seed).choice(len(steps), count, p=shares)
    order = np.zeros(count, np.uint32)
    first = 0
    for number, n in enumerate(steps):
        turns = np.flatnonzero(chosen == number)
        order[turns] = first + np.arange(len(turns)) % n
        first += n
    return np.repeat(np.arange(len(steps), dtype=np.uint16), steps), order
