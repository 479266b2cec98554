"""Measures the best variants again, by turns: none wins by one lucky measurement.  Layer 5 (analyze)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tisfast import limits
from tisfast.analyze.aims import Aims
from tisfast.analyze.ranking import TURNS_MIN, Placed, Simple, by_figures, difference, fallen, recommended, standing
from tisfast.analyze.trials import Trial
from tisfast.analyze.variants import DEFAULT, Variant

LONGEST: Final = 4
"""Times the turns that were asked for: so many a variant has at most that is not told apart from the default."""


@dataclass(frozen=True)
class Finals:
    """What chooses the winner.

    rows: all that is known now; again: measures a row once more, in a turn; fell: told of a variant whose level breaks
    a bound now, and may measure others; simple: orders those that are alike.
    """

    rows: Callable[[], Sequence[Trial]]
    again: Callable[[Trial, int], None]
    fell: Callable[[Variant], None]
    aims: Aims
    simple: Simple

    def confirm(self, best: int, times: int) -> None:
        """Until each finalist has `times` turns with the default, and more where these do not tell the two apart.

        The finalists are the best ones of the search and the one with the best figures; where turns show less of them,
        those that come in front then, up to a bound.  The default is in each turn, for what is compared with it.
        """
        turn = max((each.turn for row in self.rows() for each in row.rounds), default=0)
        gone = {each.key for each in self.rows() if fallen(each, self.aims)}
        for _ in range(times * limits.ANALYZE_CONFIRM_WAVES_MAX):
            due = self._due(best, times)
            if not due:
                return
            turn += 1
            for each in due[:: -1 if turn % 2 else 1]:
                self.again(each, turn)
            for each in self.rows():
                if each.key not in gone and fallen(each, self.aims):
                    gone.add(each.key)
                    self.fell(each.variant)

    def _due(self, best: int, times: int) -> list[Trial]:
        """What the next turn measures, the best one first."""
        trials, aims = self.rows(), self.aims
        base, rows = standing(trials, aims)
        ordered = by_figures(base, rows, aims, self.simple)
        if not ordered:
            return []
        winner = recommended(ordered, base, aims)
        others = [each for each in ordered if each.trial is not base]
        due = []
        for each in others:
            won = 0.0 if each is winner else winner.gain
            if each.trial.turns and _wants(each.trial, base, aims, times, won):
                due.append(each.trial)
        if not due:
            begun = {each.variant.text for each in trials if each.turns and each.variant != DEFAULT}
            head = min(ordered, key=lambda each: (each.excess, -each.gain))  # though a simpler one is alike
            new = [each for each in others if not each.trial.turns and (each in ordered[:best] or each is head)]
            if begun:
                new = [each for each in new if not _behind(each, winner, aims)]
            in_place = [each.trial for each in new if each.trial.variant.text in begun]  # of a level that fell out
            due = in_place or [each.trial for each in new[: max(2 * best + 2 - len(begun), 0)]]
        if base is not None and (due or _wants(base, None, aims, times)):
            due.append(base)
        return due


def _behind(row: Placed, winner: Placed, aims: Aims) -> bool:
    """What was measured once is no better than what has won by turns."""
    if not winner.trial.turns:
        return False
    return row.excess > winner.excess or (row.excess == winner.excess and row.gain <= winner.gain - aims.alike)


def _wants(trial: Trial, base: Trial | None, aims: Aims, times: int, won: float = 0.0) -> bool:
    """One more turn.  Looked at when it has had `times`, twice as many, and so on: each look is a chance for chance.

    won: the gain of another one that has won so far.
    """
    shared = len(trial.turns) if base is None else difference(trial, base, aims).turns
    wanted = max(times, TURNS_MIN) if _breaks_now(trial, aims) else times
    while shared >= wanted and wanted < LONGEST * times and _open(trial, base, aims, wanted, won):
        wanted = min(2 * wanted, LONGEST * times)
    return shared < wanted


def _breaks_now(trial: Trial, aims: Aims) -> bool:
    return bool(aims.excess(trial)) and not aims.excess(trial.first)


def _open(trial: Trial, base: Trial | None, aims: Aims, turns: int, won: float) -> bool:
    """It seems better than what has won, and is not told apart from the default: more turns may tell."""
    if base is None or aims.excess(base) or aims.excess(trial):
        return False
    found = difference(trial, base, aims, turns)
    return found.gain > max(aims.alike, won) and not found.better(aims)
