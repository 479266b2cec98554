"""What is measured again until the first rank does not stand on luck, and what is told from chance."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.analyze.made_trials import trial
from tisfast.analyze.aims import Aims, Constraint, Simplicity, difference, ranking
from tisfast.analyze.confirm import confirm
from tisfast.analyze.explain import explained
from tisfast.analyze.space import Axis, Space
from tisfast.analyze.subject import Subject
from tisfast.analyze.trials import joined
from tisfast.errors import Unavailable

SUBJECT = Subject({"m": {"max_batch_size": 0, "instance_group": [{"count": 1}]}})
SPACE = Space((Axis("instances", (1, 2, 3, 4, 5, 6, 7, 8)),))


class Measured:
    """Rows by key, with the first figures that a search has found; `true` has what further measurements find."""

    def __init__(self, first, true, aims=None):
        self.aims = aims or Aims()
        self.rows = {count: trial({"instances": count} if count else {}, 8, found) for count, found in first.items()}
        self.true, self.turns = true, []

    def ranked(self, needed=1):
        return ranking(self.rows.values(), self.aims, Simplicity(SPACE), needed)

    def again(self, row, turn):
        count = int(row.variant.value("instances") or 0)
        found = self.true[count]
        new = trial({}, 8, 0, failure=found) if isinstance(found, str) else trial({}, 8, found)
        self.rows[count] = joined(row, new, turn)
        self.turns.append((turn, count))

    def confirm(self, best=2, times=3):
        confirm(self.ranked, self.again, self.aims, best=best, times=times)
        return [each.trial.variant.value("instances") or 0 for each in self.ranked(times + 1)]


def test_the_best_and_the_default_are_measured_by_turns():
    made = Measured({0: 100, 2: 150, 4: 200}, {0: 100, 2: 150, 4: 200})
    assert made.confirm(times=2) == [4, 2, 0]
    assert made.turns == [(1, 0), (1, 2), (1, 4), (2, 4), (2, 2), (2, 0)]


def test_a_lucky_row_does_not_take_the_place_of_one_that_was_measured_again():
    """4 and 5 fall when they are measured again, and 3, with one lucky figure then, comes first: it falls, too."""
    made = Measured({0: 100, 2: 160, 3: 180, 4: 190, 5: 200}, {0: 100, 2: 160, 3: 110, 4: 110, 5: 110})
    assert made.confirm(best=1)[0] == 2
    # One more measurement of each showed it; 2 needs all three.
    assert {count: row.measured for count, row in made.rows.items() if count} == {2: 4, 3: 2, 4: 2, 5: 2}
    assert {turn for turn, _ in made.turns} == {turn for turn, count in made.turns if count == 0}


def test_the_best_figures_are_confirmed_though_a_simpler_variant_is_alike():
    """8 alone has 2 stand for it: without its luck 1 is the best."""
    made = Measured({0: 100, 1: 196, 2: 199, 8: 204}, {0: 100, 1: 196, 2: 199, 8: 150})
    assert made.confirm(best=1)[0] == 1


def test_it_goes_on_behind_the_turns_of_a_run_before():
    made = Measured({0: 100, 2: 200}, {0: 100, 2: 200})
    made.confirm(times=1)
    made.confirm(times=2)
    assert made.turns == [(1, 0), (1, 2), (2, 2), (2, 0)]
    made.confirm(times=2)
    assert len(made.turns) == 4


def test_what_fails_when_it_is_measured_again_is_no_winner():
    made = Measured({0: 100, 2: 200}, {0: 100, 2: "it broke"})
    assert made.confirm() == [0]


def test_confirming_ends():
    """Whatever is measured again is worse than all that were not: all are, and then it is over."""
    made = Measured({0: 100, **{count: 200 + count for count in range(1, 9)}}, dict.fromkeys(range(9), 10))
    made.confirm(best=1, times=1)
    assert len(made.turns) <= 2 * 10
    assert made.ranked(2)[0].trial.measured > 1


def test_a_row_that_was_measured_less_stands_behind():
    """A run that was interrupted while it confirmed."""
    rows = [trial({}, 8, 100), trial({"instances": 2}, 8, 180), trial({"instances": 3}, 8, 220)]
    rows[:2] = [joined(each, each, 1) for each in rows[:2]]
    found = ranking(rows, Aims(), Simplicity(SPACE), 2)
    assert [each.trial.throughput for each in found] == [180, 100, 220]
    said = "\n".join(explained(found, rows, Aims(), SUBJECT, 2))
    assert "instances 3 had better figures (220 inferences/s) in 1 measurements, but not the 2" in said
    bound = Aims(constraints=(Constraint("throughput", 200, most=False),))
    found = ranking(rows, bound, Simplicity(SPACE), 2)
    assert found[0].trial.throughput == 220  # the only one that keeps the bound
    assert "The winner was measured 1 times, not the 2 that were wanted" in "\n".join(
        explained(found, rows, bound, SUBJECT, 2)
    )


def rounds(settings, values, **figures):
    row = trial(settings, 8, values[0], **figures)
    for turn, value in enumerate(values[1:], 1):
        row = joined(row, trial(settings, 8, value, **figures), turn)
    return row


def words(winner, default, aims=None):
    aims = aims or Aims()
    return "\n".join(explained(ranking([default, winner], aims, Simplicity(SPACE)), [], aims, SUBJECT))


def test_a_gain_that_all_turns_show_is_told_from_chance():
    winner, default = rounds({"instances": 2}, [150, 110, 121, 132]), rounds({}, [100, 100, 110, 120])
    found = difference(winner, default, Aims())
    assert (found.turns, found.apart) == (3, True)  # the machine became faster by turns: the ratios say so
    assert found.gain == pytest.approx(10)
    assert "Measured again by turns, 3 times each: the gain is +10 %, its 95 % interval from +10 to +10 %." in words(
        winner, default
    )


def test_a_gain_that_the_turns_do_not_share_is_not_told_from_chance():
    winner, default = rounds({"instances": 2}, [300, 130, 90, 140]), rounds({}, [100, 100, 100, 100])
    assert not difference(winner, default, Aims()).apart
    assert "they are not told apart, it may be chance (a greater --confirm)" in words(winner, default)


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_too_few_turns_tell_nothing(turns):
    winner, default = rounds({"instances": 2}, [200] * (turns + 1)), rounds({}, [100] * (turns + 1))
    found = difference(winner, default, Aims())
    assert (found.turns, found.apart) == (turns, False)
    assert found.gain == pytest.approx(100)
    assert f"They are not told apart: both were measured again in {turns} turns" in words(winner, default)


def test_the_objective_judges_and_not_the_throughput():
    """Throughputs are apart, latencies are not."""
    aims = Aims((("latency_p99", 1.0),))
    values = [(200, 5), (200, 9), (200, 11), (200, 10)]
    winner = trial({"instances": 2}, 8, *values[0])
    for turn, value in enumerate(values[1:], 1):
        winner = joined(winner, trial({}, 8, *value), turn)
    default = rounds({}, [100, 100, 100, 100], p99=10)
    assert not difference(winner, default, aims).apart
    assert difference(winner, default, Aims()).apart


def test_the_interval_holds_the_true_gain_as_often_as_it_says():
    source = random.Random(1)
    held, runs = 0, 1000
    for _ in range(runs):
        winner, default = (
            rounds(settings, [value * math.exp(source.gauss(0, 0.05)) for _ in range(6)])
            for settings, value in (({"instances": 2}, 110), ({}, 100))
        )
        found = difference(winner, default, Aims())
        held += found.low <= 10 <= found.high
    assert 0.93 < held / runs < 0.97


def test_what_ends_the_server_ends_the_confirmation():
    made = Measured({0: 100, 2: 200}, {0: 100, 2: 200})
    calls = itertools.count(1)

    def again(row, turn):
        if next(calls) == 3:
            raise Unavailable("the server has gone")
        made.again(row, turn)

    with pytest.raises(Unavailable, match="the server has gone"):
        confirm(made.ranked, again, made.aims, best=1, times=3)
    assert len(made.turns) == 2
