"""Measures the best variants again, by turns: none is the best by one lucky measurement.  Layer 5 (analyze)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tisfast import limits
from tisfast.analyze.aims import Aims, Ranked
from tisfast.analyze.trials import Trial
from tisfast.analyze.variants import DEFAULT


def confirm(
    ranked: Callable[[], list[Ranked]], again: Callable[[Trial, int], None], aims: Aims, *, best: int, times: int
) -> None:
    """Until the best ones, the one with the best figures and the default have `times` measurements more.

    Figures change with each turn, and so may those that are the best: they are measured, too.  The default is in each
    turn, for what is compared with it.  ranked: by what is known now; again: measures a row once more, in a turn.
    """
    turn = max((each.turn for row in ranked() for each in row.trial.rounds), default=0)
    for _ in range(times * limits.ANALYZE_CONFIRM_WAVES_MAX):
        wanted = _finalists(ranked(), aims, best)
        if all(each.measured > times for each in wanted):
            return
        turn += 1
        rows = [each for each in wanted if each.measured <= times or each.variant == DEFAULT]
        for each in rows[:: -1 if turn % 2 else 1]:
            again(each, turn)


def _finalists(ranked: Sequence[Ranked], aims: Aims, best: int) -> list[Trial]:
    """The best ones in their order, the one of the best figures, though a simpler one is alike, and the default."""
    rows = [each.trial for each in ranked]
    if not rows:
        return []
    head = min(rows, key=lambda each: (aims.excess(each), -aims.gain(each, rows[0])))
    wanted = [*rows[:best], head, *(each for each in rows if each.variant == DEFAULT)]
    return list({each.key: each for each in wanted}.values())
