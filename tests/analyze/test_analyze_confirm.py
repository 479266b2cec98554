"""What is measured again until the first rank does not stand on luck, and what is told from chance."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tests.analyze.made_trials import served, trial
from tisfast.analyze.aims import Aims, Constraint
from tisfast.analyze.confirm import Finals
from tisfast.analyze.explain import explained
from tisfast.analyze.ranking import Simplicity, difference, gain_text, ranking
from tisfast.analyze.space import Axis, Space
from tisfast.analyze.subject import Subject
from tisfast.analyze.table import csv_text, table
from tisfast.analyze.trials import joined
from tisfast.errors import Unavailable

SUBJECT = Subject({"m": {"max_batch_size": 0, "instance_group": [{"count": 1}]}})
SPACE = Space((Axis("instances", tuple(range(1, 42))),))
SIMPLE = Simplicity(SPACE)


class Measured:
    """Rows with the first figures that a search has found; `true` has what turns find, or tells it by turn.

    Keys are numbers of instances, 0 of the default, or pairs with a level; figures are throughputs, or pairs with p99.
    """

    def __init__(self, first, true=None, aims=None):
        self.aims, self.rows = aims or Aims(), {}
        self.true, self.turns, self.told = true or first, [], []
        for key, found in first.items():
            count, level = key if isinstance(key, tuple) else (key, 8)
            row = self.figures({"instances": count} if count else {}, level, found)
            self.rows[row.key] = row

    def figures(self, settings, level, found):
        if isinstance(found, str):
            return trial(settings, level, 0, failure=found)
        return trial(settings, level, *(found if isinstance(found, tuple) else (found,)))

    def again(self, row, turn):
        count = int(row.variant.value("instances") or 0)
        found = self.true.get((count, row.level), self.true.get(count))
        new = self.figures({}, row.level, found(turn) if callable(found) else found)
        self.rows[row.key] = joined(row, new, turn)
        self.turns.append((turn, count) if row.level == 8 else (turn, count, row.level))

    def all(self):
        return list(self.rows.values())

    def ranked(self):
        return ranking(self.all(), self.aims, SIMPLE)

    def confirm(self, best=2, times=3):
        Finals(self.all, self.again, self.told.append, self.aims, SIMPLE).confirm(best, times)
        return [each.trial.variant.value("instances") or 0 for each in self.ranked()]

    def notes(self):
        return {int(each.trial.variant.value("instances") or 0): each.note for each in self.ranked()}

    def words(self, wanted=3):
        return "\n".join(explained(self.ranked(), self.all(), self.aims, SUBJECT, wanted))


def noisy(source, value, deviation=0.05):
    return lambda turn=0: value * math.exp(source.gauss(0, deviation))


def searched(true, seed):
    """A search of 40 variants, each of 100 inferences/s where `true` has no other figure, with a noise of 5 %."""
    source = random.Random(seed)
    figures = {count: noisy(source, true.get(count, 100)) for count in range(41)}
    made = Measured({count: found() for count, found in figures.items()}, figures)
    return made.confirm(best=3)[0]


def test_what_is_no_better_than_the_default_hardly_ever_wins():
    """40 variants that are the default under other names."""
    won = sum(searched({}, seed) != 0 for seed in range(40))
    assert won <= 4


@pytest.mark.parametrize(("gain", "least"), [(1.2, 19), (26, 20)])
def test_what_is_better_is_found(gain, least):
    assert sum(searched({7: 100 * gain}, seed) == 7 for seed in range(20)) >= least


def test_the_best_and_the_default_are_measured_by_turns():
    made = Measured({0: 100, 2: 150, 4: 200})
    assert made.confirm(times=2) == [4, 2, 0]
    assert made.turns[:6] == [(1, 0), (1, 2), (1, 4), (2, 4), (2, 2), (2, 0)]
    assert made.turns[6:] == [(3, 0), (3, 2), (3, 4), (4, 4), (4, 0)]  # two tell nothing; then 4 has won
    assert set(made.notes().values()) == {""}


def test_the_search_chooses_and_the_turns_decide():
    """One lucky measurement is no part of the figures that are compared."""
    made = Measured({0: 100, 4: 118}, {0: 100, 4: 100})
    assert made.confirm() == [0, 4]
    (row,) = [each for each in made.ranked() if each.trial.variant.value("instances") == 4]
    assert (row.trial.throughput, row.gain) == (100, 0)
    assert "It is the default: no variant is better by more than 3 %" in made.words()


def test_a_lucky_row_does_not_take_the_place_of_one_that_was_measured_again():
    """5, 4 and 3 fall when they are measured again: 2 comes in front, and is measured, too."""
    made = Measured({0: 100, 2: 160, 3: 180, 4: 190, 5: 200}, {0: 100, 2: 160, 3: 110, 4: 110, 5: 110})
    source = random.Random(1)
    for count, value in list(made.true.items()):
        made.true[count] = noisy(source, value, 0.001)
    assert made.confirm(best=1)[0] == 2
    assert {turn for turn, _ in made.turns} == {turn for turn, count in made.turns if count == 0}


def test_finalists_are_bounded_and_the_others_say_that_they_were_measured_once():
    """Whatever is measured again is worse than all that were not."""
    made = Measured({0: 100, **{count: 200 + 10 * count for count in range(1, 9)}}, dict.fromkeys(range(9), 10))
    found = made.confirm(best=1, times=3)
    assert len({count for _, count in made.turns}) == 5
    assert found[0] == 0
    assert found[1:5] == [4, 3, 2, 1]  # by gain, though they were measured once
    assert [made.notes()[count] for count in found[:5]] == ["", *["measured once"] * 4]
    assert "instances 4 had better figures (240 inferences/s, p99 10 ms), but was measured once" in made.words()


def test_the_best_figures_are_confirmed_though_a_simpler_variant_is_alike():
    """8 alone has 2 stand for it: without its luck 1 is the best."""
    made = Measured({0: 100, 1: 196, 2: 199, 8: 204}, {0: 100, 1: 196, 2: 199, 8: 150})
    assert made.confirm(best=1)[0] == 1


def test_it_goes_on_behind_the_turns_of_a_run_before():
    made = Measured({0: 100, 2: 200})
    made.confirm(times=1)
    before = len(made.turns)
    made.confirm(times=3)
    assert made.turns[before:] == []  # 1 turn, and up to 4 as it told nothing
    made.confirm(times=5)
    assert [turn for turn, _ in made.turns[before:]] == [5, 5]


@pytest.mark.parametrize("cut", range(1, 6))
def test_what_was_interrupted_is_completed(cut):
    """Whatever was measured before, the same command ends with turns of both."""
    made = Measured({0: 100, 2: 200})
    calls = itertools.count()

    def again(row, turn):
        if next(calls) == cut:
            raise Unavailable("the server has gone")
        made.again(row, turn)

    with pytest.raises(Unavailable):
        Finals(made.all, again, made.told.append, made.aims, SIMPLE).confirm(2, 3)
    assert made.confirm() == [2, 0]
    found = made.ranked()[0].difference
    assert (found.turns, found.apart) == (3, True)


def test_a_level_that_looks_better_in_turns_does_not_take_the_pairs_away():
    """The default's best level of the search stands for it, whatever its other levels would give now."""
    made = Measured({(0, 8): 100, (0, 16): 99, (2, 8): 2600}, {(0, 8): 80, (0, 16): 120, (2, 8): 2600})
    assert made.confirm() == [2, 0]
    assert all(len(each) == 2 for each in made.turns)  # at level 8 alone
    assert made.ranked()[0].gain_text == "x32.5"
    said = made.words()
    assert "32.5 times as good by throughput." in said
    assert "3 times each: the gain by throughput is x32.5" in said


def test_what_is_not_told_apart_has_more_turns_up_to_a_bound():
    source = random.Random(3)
    made = Measured({0: 100, 2: 110}, {0: noisy(source, 100, 0.2), 2: noisy(source, 110, 0.2)})
    assert made.confirm() == [0, 2]
    assert {sum(count == each for _, count in made.turns) for each in (0, 2)} == {12}
    (row,) = [each for each in made.ranked() if each.note]
    assert row.note == "not told apart"
    assert "not told apart" in table(made.ranked()).splitlines()[2]
    assert "not told apart" in csv_text(1, SUBJECT, made.ranked())
    said = made.words()
    assert "It is the default: instances 2 has " in said
    assert "but they are not told apart (measured again by turns, 12 times each: the gain by throughput is +" in said


def test_what_is_told_apart_later_is_found_with_more_turns():
    source = random.Random(2)
    made = Measured({0: 100, 2: 115}, {0: noisy(source, 100, 0.02), 2: noisy(source, 115, 0.02)})
    assert made.confirm() == [2, 0]
    assert len(made.turns) in (12, 24)


BOUND = Aims(constraints=(Constraint("latency_p99", 30, most=True),))


def by_turn(*found):
    return lambda turn: found[(turn - 1) % len(found)]


def test_one_unlucky_turn_does_not_break_a_bound():
    made = Measured(
        {0: (100, 5.0), (2, 16): (200, 29.0), (2, 8): (120, 20.0)},
        {0: (100, 5.0), (2, 16): by_turn((200, 29.0), (200, 42.5), (200, 29.1))},
        BOUND,
    )
    assert made.confirm() == [2, 0]
    assert (made.ranked()[0].trial.level, made.ranked()[0].broken) == (16, [])
    assert made.told == []


@pytest.mark.parametrize("times", [1, 3])
def test_a_level_that_falls_out_has_the_next_lower_one_in_its_place(times):
    """The bound is judged by three turns, also where fewer were asked for."""
    made = Measured(
        {0: (100, 5.0), (2, 16): (200, 29.0), (2, 12): (160, 25.0), (2, 8): (120, 20.0)},
        {0: (100, 5.0), (2, 16): (200, 35.0), (2, 12): (160, 25.0)},
        BOUND,
    )
    assert made.confirm(times=times)[0] == 2
    best = made.ranked()[0]
    assert (best.trial.level, best.broken, best.difference.apart) == (12, [], True)
    assert [each.text for each in made.told] == ["instances 2"]
    assert sum(each[1:] == (2, 16) for each in made.turns) == 3


def test_a_level_of_the_default_that_falls_out_leaves_pairs():
    made = Measured(
        {(0, 8): (100, 29.0), (0, 4): (60, 10.0), 2: (200, 10.0)},
        {(0, 8): (100, 40.0), (0, 4): (60, 10.0), 2: (200, 10.0)},
        BOUND,
    )
    assert made.confirm() == [2, 0]
    best, default = made.ranked()
    assert (default.trial.level, best.difference.turns, best.gain_text) == (4, 3, "x3.33")


def test_where_the_default_breaks_a_bound_what_keeps_it_stands_first():
    made = Measured({0: (100, 40.0), 2: (70, 10.0), 3: (71, 10.0)}, aims=BOUND)
    assert made.confirm() == [2, 3, 0]
    assert made.ranked()[2].broken


def test_what_fails_when_it_is_measured_again_is_no_winner():
    made = Measured({0: 100, 2: 200}, {0: 100, 2: "it broke"})
    assert made.confirm() == [0]


def test_where_nothing_was_measured_again_the_figures_decide_and_say_so():
    made = Measured({0: 100, 2: 200, 4: 400})
    assert made.confirm(times=0) == [4, 2, 0]
    assert set(made.notes().values()) == {"measured once"}
    assert "4 times as good by throughput, but it was measured once: it may be chance." in made.words(0)


def test_gains_have_one_form():
    texts = {1.0: "+0 %", 1.5: "+50 %", 0.25: "-75 %", 2.0: "x2", 25.83: "x25.8", 5000.0: "x1000 or more"}
    assert {value: gain_text(math.log(value)) for value in texts} == texts
    made = Measured({0: 100, 2: 2483.0})
    made.confirm()
    assert "x24.8" in table(made.ranked())
    assert "x24.8" in csv_text(1, SUBJECT, made.ranked())


def test_words_speak_of_the_objective_that_was_asked_for():
    aims = Aims((("memory", 1.0),))
    rows = [trial({}, 8, 100, memory_mb=80.0), trial({"instances": 2}, 8, 186, memory_mb=40.0, served=served())]
    for turn in (1, 2, 3):
        rows = [joined(each, each, turn) for each in rows]
    said = "\n".join(explained(ranking(rows, aims, SIMPLE), rows, aims, SUBJECT, 3))
    assert "186 inferences/s, p99 10 ms, memory 40 MB; the default's best, at concurrency 8, has 100" in said
    assert "memory 80 MB: 2 times as good by memory." in said
    assert "the gain by memory is x2" in said
    aims = Aims((("gpu_memory", 1.0),))
    rows = [trial({}, 8, 100, gpu_memory_mb=80.0), trial({"instances": 2}, 8, 186, gpu_memory_mb=90.0)]
    said = "\n".join(explained(ranking(rows, aims, SIMPLE), rows, aims, SUBJECT))
    assert "the next one, instances 2, has 186 inferences/s, p99 10 ms, gpu memory 90 MB at concurrency 8." in said


def rounds(settings, values, **figures):
    row = trial(settings, 8, values[0], **figures)
    for turn, value in enumerate(values[1:], 1):
        row = joined(row, trial(settings, 8, value, **figures), turn)
    return row


def words(winner, default, aims=None):
    aims = aims or Aims()
    return "\n".join(explained(ranking([default, winner], aims, SIMPLE), [], aims, SUBJECT))


def test_a_gain_that_all_turns_show_is_told_from_chance():
    winner, default = rounds({"instances": 2}, [150, 110, 121, 132]), rounds({}, [100, 100, 110, 120])
    found = difference(winner, default, Aims())
    assert (found.turns, found.apart) == (3, True)  # the machine became faster by turns: the ratios say so
    assert found.gain == pytest.approx(math.log(1.1))
    assert (
        "Measured again by turns, 3 times each: the gain by throughput is +10 %, its 99.5 % interval from +10 % to "
        "+10 %." in words(winner, default)
    )


def test_a_gain_that_the_turns_do_not_share_is_not_told_from_chance():
    winner, default = rounds({"instances": 2}, [300, 130, 90, 140]), rounds({}, [100, 100, 100, 100])
    assert not difference(winner, default, Aims()).apart
    assert "but they are not told apart (measured again by turns, 3 times each: " in words(winner, default)


@pytest.mark.parametrize(("turns", "told"), [(1, "in 1 turn alone"), (2, "in 2 turns alone")])
def test_too_few_turns_tell_nothing(turns, told):
    winner, default = rounds({"instances": 2}, [200] * (turns + 1)), rounds({}, [100] * (turns + 1))
    found = difference(winner, default, Aims())
    assert (found.turns, found.apart) == (turns, False)
    assert found.gain == pytest.approx(math.log(2))
    assert f"2 times as good by throughput, but they are not told apart (they were measured again together {told})" in (
        words(winner, default)
    )


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
    held, runs = 0, 2000
    for _ in range(runs):
        winner, default = (
            rounds(settings, [value * math.exp(source.gauss(0, 0.05)) for _ in range(6)])
            for settings, value in (({"instances": 2}, 110), ({}, 100))
        )
        found = difference(winner, default, Aims())
        held += found.low <= math.log(1.1) <= found.high
    assert 0.99 < held / runs < 0.999
