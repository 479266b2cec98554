"""Spaces, searches and rankings, without a server."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.made_trials import trial, variant
from tisfast.analyze.aims import Aims, Constraint
from tisfast.analyze.ranking import Simplicity, best_level, ranking
from tisfast.analyze.search import bayesian, brute, quick
from tisfast.analyze.space import Automatic, Axis, Load, Space, check, free_axis, numbers
from tisfast.analyze.subject import Subject
from tisfast.analyze.trials import Share, joined
from tisfast.analyze.tries import Tries
from tisfast.analyze.variants import DEFAULT, configured, in_force
from tisfast.errors import BadRequest, ConfigError

CONFIG = {
    "name": "m",
    "max_batch_size": 8,
    "instance_group": [{"name": "m", "kind": "KIND_CPU", "count": 1}],
    "dynamic_batching": {"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 100},
}
GRID = Space((Axis("instances", (1, 2, 3, 4, 5)), Axis("max_batch_size", (1, 2, 4, 8, 16))))


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_climbing_finds_the_top_of_a_hill(x, y, top_x, top_y):
    asked = {}

    def score(point):
        return asked.setdefault(point, -math.hypot(point[0] - top_x, point[1] - top_y))

    quick(GRID, (x, y), score, 0.01)
    assert asked[top_x, top_y] == max(asked.values())


def test_climbing_goes_round_a_corner_and_past_failures():
    """From (0, 0) only a step along both axes is better; one neighbour fails."""
    heights = {(0, 0): 1.0, (1, 0): -math.inf, (0, 1): 0.5, (1, 1): 2.0}
    asked = []

    def score(point):
        asked.append(point)
        return heights.get(point, 0.0)

    quick(GRID, (0, 0), score, 0.01)
    assert (2, 2) in asked  # it went on from (1, 1)


def test_climbing_steps_over_values_that_fail():
    """1 to 3 fail in a row; 4 does not.  Where more fail, nothing behind them is looked at."""
    line = Space((Axis("instances", (1, 2, 3, 4, 5, 6)),))
    for failing, reached in ((1, 2), (3, 4), (4, None)):
        asked = {}

        def score(point, failing=failing, asked=asked):
            return asked.setdefault(point, -math.inf if 1 <= point[0] <= failing else float(point[0]))

        quick(line, (0,), score, 0.0)
        assert (5,) in asked if reached else max(asked) == (4,)
        assert reached is None or asked[reached,] == reached


def test_the_search_begins_at_the_nearest_values():
    axes = (Axis("instances", (2, 4, 8)), Axis("max_batch_size", (1, 7, 20)), Axis("parameters.x", ('"a"', '"b"')))
    assert Space(axes).start(Subject({"m": {**CONFIG, "instance_group": [{"count": 5}]}}).in_force) == (1, 1, 0)


def test_neighbours_along_several_axes_are_bounded():
    """Axes of one value have none; nearer ones come first."""
    assert Space((Axis("x", (1,)), Axis("y", (1, 2)), Axis("z", (1, 2, 3)))).around((0, 0, 1)) == [(0, 1, 2), (0, 1, 0)]
    single = tuple(Axis(f"one{at}", (1,)) for at in range(100))
    assert Space(single).around((0,) * 100) == []
    many = Space(tuple(Axis(f"two{at}", (1, 2)) for at in range(13)))
    found = many.around((0,) * 13)
    assert len(found) == len(set(found)) == 256
    assert [sum(each) for each in found] == sorted(map(sum, found))
    assert sum(found[0]) == 2


def test_climbing_ends_on_a_plain():
    asked = set()

    def score(point):
        asked.add(point)
        return 1.0

    quick(GRID, (2, 2), score, 0.0)
    assert len(asked) == 9


def test_the_sampler_finds_the_top_and_measures_no_more_than_it_may():
    """25 places, 15 of them measured; the same figures give the same path."""
    asked: list[dict] = [{}, {}]
    for seen in asked:

        def score(point, seen=seen):
            return seen.setdefault(point, -math.inf if point == (0, 0) else -abs(point[0] - 3) - abs(point[1] - 1))

        bayesian(GRID, (0, 0), score, 15)
    assert list(asked[0]) == list(asked[1])
    assert len(asked[0]) == 15
    assert next(iter(asked[0])) == (0, 0)
    assert max(asked[0].values()) == 0
    few: dict = {}
    bayesian(Space(GRID.axes[:1]), (0,), lambda point: few.setdefault(point, 1.0), 100)
    assert len(few) == 5


def test_points_of_one_variant_are_one_trial():
    """A setting of a format is none of the other one."""
    space = Space((Axis("format", ("a", "b")), Axis("b:parameters.x", tuple(range(1, 9)))))
    assert (space.count, space.variants, GRID.variants) == (16, 9, 25)
    asked = set()
    bayesian(space, (0, 0), lambda point: asked.add(space.variant(point)) or 1.0, 6)
    assert len(asked) == 6


def test_brute_force_takes_all():
    asked = []
    brute(GRID, lambda point: asked.append(point) or 0.0)
    assert len(set(asked)) == len(asked) == GRID.count == 25


def test_a_variant_changes_what_it_names_and_nothing_else():
    made = configured(variant(instances=3, max_batch_size=4), CONFIG)
    assert made["instance_group"] == [{"name": "m", "kind": "KIND_CPU", "count": 3}]
    assert made["max_batch_size"] == 4
    assert made["dynamic_batching"] == {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100}
    assert configured(DEFAULT, CONFIG) == CONFIG
    assert "dynamic_batching" not in configured(variant(max_batch_size=1), CONFIG)
    plain = configured(variant(instances=1), CONFIG)
    assert plain == CONFIG


def test_any_key_may_be_varied():
    threads, path = free_axis("parameters.threads=1,2"), free_axis("optimization.priority=PRIORITY_MAX")
    lists = free_axis('dynamic_batching={"preserve_ordering": true}')
    made = configured(Space((threads, path, lists)).variant((1, 0, 0)), CONFIG)
    assert made["parameters"] == {"threads": {"string_value": "2"}}
    assert made["optimization"] == {"priority": "PRIORITY_MAX"}
    assert made["dynamic_batching"] == {"preserve_ordering": True}
    with pytest.raises(BadRequest, match="'max_batch_size' is no message"):
        configured(variant(**{"max_batch_size.x": 1}), CONFIG)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("instances", 1),
        ("max_batch_size", 8),
        ("preferred_batch_size", "[4, 8]"),
        ("max_queue_delay_microseconds", 100),
        ("name", '"m"'),
        ("optimization.priority", "null"),
    ],
)
def test_the_search_begins_at_the_default(name, value):
    assert in_force(name, CONFIG) == value
    assert Space((Axis(name, (77, value)),)).start(Subject({"m": CONFIG}).in_force) == (1,)


@pytest.mark.parametrize(
    ("text", "found"), [("1,2,4", (1, 2, 4)), ("1:3", (1, 2, 3)), ("1:9:4", (1, 5, 9)), ("4,1:2,2", (1, 2, 4))]
)
def test_lists_and_ranges(text, found):
    assert numbers("--x", text) == found


@pytest.mark.parametrize("text", ["", "a", "1:2:3:4", "3:1", "1:5:0", "0,1", "1.5", "1:1e9", "nan", "inf"])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(ConfigError, match="--x"):
        numbers("--x", text)


def test_what_a_model_has_no_place_for_is_refused():
    single = {"max_batch_size": 0}
    assert [axis.name for axis in Automatic().space(single).axes] == ["instances"]
    assert [axis.name for axis in Automatic().space(CONFIG).axes] == ["instances", "max_batch_size"]
    for name in ("max_batch_size", "preferred_batch_size", "max_queue_delay_microseconds"):
        with pytest.raises(BadRequest, match=f"{name} cannot be searched: model 'm' has max_batch_size 0"):
            check(Space((Axis(name, (1,)),)), single, "m")
    with pytest.raises(BadRequest, match="is served in sequences"):
        check(GRID, {**CONFIG, "sequence_batching": {}}, "m")
    with pytest.raises(BadRequest, match="is an ensemble"):
        check(Automatic().space(single), {**single, "ensemble_scheduling": {}}, "m")
    with pytest.raises(ConfigError, match="has 15625 variants, and at most 10000"):
        Space(tuple(Axis(f"x{at}", tuple(range(25))) for at in range(3)))


def names(trials, aims):
    return [each.trial.variant.text for each in ranking(trials, aims, Simplicity(GRID))]


def test_the_most_throughput_wins_and_what_is_alike_goes_to_the_simpler():
    rows = [
        trial({}, 1, 100),
        trial({}, 4, 300),
        trial({"instances": 2, "max_batch_size": 1}, 4, 500),
        trial({"instances": 4, "max_batch_size": 1}, 4, 505),
        trial({"instances": 5, "max_batch_size": 1}, 4, 0, failure="it failed"),
    ]
    found = ranking(rows, Aims(), Simplicity(GRID))
    assert [each.trial.variant.text for each in found] == [
        "instances 2, max_batch_size 1",
        "instances 4, max_batch_size 1",
        "default",
    ]
    assert found[0].gain == pytest.approx(100 * (500 / 300 - 1))
    assert names(rows, Aims(margin=0.0))[0] == "instances 4, max_batch_size 1"


def test_bounds_come_before_objectives():
    rows = [
        trial({}, 1, 100, p99=5),
        trial({"instances": 2, "max_batch_size": 1}, 4, 500, p99=50),
        trial({"instances": 2, "max_batch_size": 1}, 2, 200, p99=20),
        trial({"instances": 3, "max_batch_size": 1}, 4, 600, p99=70),
    ]
    bound = Constraint("latency_p99", 30, True)
    found = ranking(rows, Aims(constraints=(bound,)), Simplicity(GRID))
    assert [(each.trial.level, each.broken) for each in found] == [
        (2, []),
        (1, []),
        (4, ["latency_p99 is 70 ms, not <= 30 ms"]),
    ]
    tight = Aims(constraints=(Constraint("latency_p99", 1, True), Constraint("throughput", 1000, False)))
    assert all(each.broken for each in ranking(rows, tight, Simplicity(GRID)))


def test_objectives_are_weighed():
    rows = [trial({}, 1, 100, p99=10, memory_mb=100.0), trial({"instances": 2}, 1, 200, p99=30, memory_mb=200.0)]
    assert names(rows, Aims((("throughput", 1.0),)))[0] == "instances 2"
    assert names(rows, Aims((("latency_p99", 1.0),)))[0] == "default"
    assert names(rows, Aims((("memory", 1.0),)))[0] == "default"
    assert names(rows, Aims((("throughput", 3.0), ("latency_p99", 1.0))))[0] == "instances 2"


def test_without_figures_of_the_default_there_is_no_gain():
    rows = [trial({}, 1, 0, failure="it does not load"), trial({"instances": 2}, 1, 200)]
    (only,) = ranking(rows, Aims(), Simplicity(GRID))
    assert only.gain is None


@pytest.mark.parametrize("text", ["preferred_batch_size=4,8", "instances=abc", "max_queue_delay_microseconds=x"])
def test_a_setting_with_a_flag_of_its_own_is_not_set_as_a_path(text):
    with pytest.raises(ConfigError, match="has a flag of its own"):
        free_axis(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('x={"a":1,"b":[2,3]}', ('{"a": 1, "b": [2, 3]}',)),
        ('x={"a":1},{"a":2}', ('{"a": 1}', '{"a": 2}')),
        ("x=[[1,2],[3]]", ("[1, 2]", "[3]")),
        ("x=fast,slow", ('"fast"', '"slow"')),
        ("x=1,true,fast", (1, "true", '"fast"')),
        ('x="a,b","c"', ('"a,b"', '"c"')),
    ],
)
def test_values_of_any_key(text, values):
    assert free_axis(text).values == values


def test_settings_that_cannot_be_are_refused_before_anything_is_measured():
    for text, told in (
        ("instance_group.count=1,2", "'instance_group' is no message of the configuration"),
        ('instance_group=[[{"count": "many"}]]', "is no value that it can have"),
        ("instance_group=3", "is no value that it can have"),
    ):
        with pytest.raises(BadRequest, match=told):
            check(Space((free_axis(text),)), CONFIG, "m")


def test_a_list_without_values_is_refused():
    with pytest.raises(ConfigError, match="the list has no value"):
        free_axis("x=[]")


def test_values_without_an_order_are_all_beside_each_other():
    """The best one stands behind one that is worse; with numbers beside them both axes are climbed."""
    gains = {(0, 0): 0.0, (1, 0): -1.0, (2, 0): 2.0, (2, 1): 3.0}
    space = Space((Axis("format", ("a", "b", "c")), Axis("instances", (1, 2, 4))))
    asked = []
    quick(space, (0, 0), lambda point: asked.append(point) or gains.get(point, -2.0), 0.01)
    assert (2, 1) in asked
    assert space.beside((1, 0)) == [(0, 0), (2, 0), (1, 1)]
    assert (2, 1) in space.around((0, 0))
    lists = Space((Axis("preferred_batch_size", ("[1]", "[2]", "[4]")),))
    assert lists.beside((0,)) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("text", "place"),
    [("parameters.threads=1,2,4,8", 2), ("parameters.threads=1,3", 1), ('parameters.threads="2","4"', 1)],
)
def test_the_search_begins_at_a_parameter_of_the_default(text, place):
    config = {"max_batch_size": 0, "parameters": {"threads": {"string_value": "4"}}}
    assert Space((free_axis(text),)).start(Subject({"m": config}).in_force) == (place,)


class FakeBench:
    """Rows that the test chooses, by level; says which were measured."""

    asked = SimpleNamespace(batch_size=1)

    def __init__(self, rows, config):
        self.rows, self.levels, self.checkpoint, self.subject = rows, [], self, Subject({"m": config})
        self.trials = {}

    def save(self):
        pass

    def trial(self, variant, mode, level):
        self.levels.append(level)
        found = self.trials[level] = self.rows(level)
        return found


AT_ONCE = {"name": "m", "max_batch_size": 2, "dynamic_batching": {}}


def tries(rows, mode="concurrency", config=CONFIG, every_level=False):
    bench = FakeBench(rows, config)
    aims = Aims(constraints=(Constraint("latency_p99", 50.0, most=True),))
    return bench, Tries(bench, Load(mode, (1.0, 2.0, 4.0, 8.0, 16.0)), aims, every_level)


def test_a_variant_that_fails_is_tried_once_and_not_at_lower_levels_again():
    bench, found = tries(lambda level: trial({}, level, 0, failure="it did not load"))
    assert len(found.rows(variant(instances=5))) == 1 and len(bench.levels) == 1


def test_without_figures_of_the_default_gains_are_against_the_first_variant_that_has_some():
    rows = {"default": trial({}, 1, 0, failure="it does not load")}
    made = [trial({"instances": count}, 16, 100 * count) for count in (2, 4)]
    bench, found = tries(lambda level: rows["default"])
    assert best_level(found.rows(DEFAULT), found.aims, None) is None
    bench.rows = lambda level: made[0]
    base = best_level(found.rows(made[0].variant), found.aims, None)
    assert found.score(made[0].variant, base) == 0
    bench.rows = lambda level: made[1]
    assert found.score(made[1].variant, base) == pytest.approx(math.log(2))
    bench.rows = lambda level: rows["default"]
    assert found.score(variant(instances=5), base) == -math.inf


def test_a_rate_that_is_too_high_is_followed_by_lower_ones():
    rows = lambda level: trial({}, level, level, failure="" if level <= 4 else "too high")  # noqa: E731
    bench, found = tries(rows, "request_rate")
    assert found.rows(variant(instances=5))[-1].level == 4 and bench.levels == [16, 8, 4]


def test_a_variant_that_is_too_slow_has_less_load_until_it_is_not():
    bench, found = tries(lambda level: trial({}, level, level, p99=level * 20))
    assert found.rows(variant(instances=1))[-1].level == 2 and bench.levels == [16, 8, 4, 2]


def test_levels_between_one_that_keeps_a_bound_and_one_that_breaks_it_are_measured():
    """p99 is 4 ms for each request in flight: 12 keep 50 ms, 13 do not."""
    bench, found = tries(lambda level: trial({}, level, level, p99=4 * level), config=AT_ONCE, every_level=True)
    found.sweep(DEFAULT)
    assert bench.levels == [1, 2, 4, 8, 16]
    found.refine(DEFAULT)
    assert bench.levels[5:] == [12, 14, 13]
    best = best_level(list(bench.trials.values()), found.aims, bench.trials[1])
    assert best.level == 12
    found.refine(DEFAULT)
    assert len(bench.levels) == 8  # nothing lies between


def test_a_level_that_fell_out_is_one_that_breaks():
    bench, found = tries(lambda level: trial({}, level, level, p99=3 * level), config=AT_ONCE, every_level=True)
    found.sweep(DEFAULT)
    for turn in (1, 2, 3):
        bench.trials[16] = joined(bench.trials[16], trial({}, 16, 16, p99=60), turn)
    found.refine(DEFAULT)
    assert bench.levels[5:] == [12, 14, 15]


@pytest.mark.parametrize("slow", [0, 100])
def test_nothing_is_refined_where_no_bound_lies_between(slow):
    bench, found = tries(lambda level: trial({}, level, level, p99=slow), config=AT_ONCE, every_level=True)
    found.sweep(DEFAULT)
    before = len(bench.levels)
    found.refine(DEFAULT)
    assert len(bench.levels) == before


def test_levels_that_the_user_has_chosen_are_not_refined():
    bench, found = tries(lambda level: trial({}, level, level, p99=4 * level), config=AT_ONCE, every_level=True)
    found.load = Load("concurrency", (8.0, 16.0), chosen=True)
    found.sweep(DEFAULT)
    found.refine(DEFAULT)
    assert bench.levels == [8, 16]
    assert not found.load.has("concurrency", 12)
    assert Load().has("concurrency", 12)


def waits_for_eight(level):
    """Fewer requests than a batch wait out its delay."""
    return trial({}, level, level, p99=100 if level < 8 else 10)


def test_a_variant_with_a_queue_delay_has_more_load_though_it_is_too_slow():
    _, found = tries(waits_for_eight, every_level=True)
    assert [row.level for row in found.rows(DEFAULT)] == [1, 2, 4, 8, 16]
    delayed = {**AT_ONCE, "dynamic_batching": {"max_queue_delay_microseconds": 100_000}}
    for config in (CONFIG, delayed):
        bench, found = tries(waits_for_eight, config=config)
        assert found.rows(variant(max_batch_size=2))[-1].level == 8
        assert bench.levels == [4, 2, 1, 8]


def test_preferred_sizes_without_a_delay_have_nobody_wait():
    """A server fills them in for every dynamic batcher."""
    preferred = {**AT_ONCE, "dynamic_batching": {"preferred_batch_size": [2]}}
    bench, found = tries(waits_for_eight, config=preferred)
    assert found.rows(variant(max_batch_size=2))[-1].level == 1
    assert bench.levels == [4, 2, 1]


def test_a_variant_without_one_has_more_load_until_its_latency_rises():
    slow = {1: 80, 2: 60, 4: 70, 8: 90}
    _, found = tries(lambda level: trial({}, level, level, p99=slow[level]), config=AT_ONCE, every_level=True)
    assert [row.level for row in found.rows(DEFAULT)] == [1, 2, 4]
    _, found = tries(lambda level: trial({}, level, level, p99=30 * level), config=AT_ONCE, every_level=True)
    assert [row.level for row in found.rows(DEFAULT)] == [1, 2]


def test_a_row_in_which_a_model_was_given_nothing_is_followed_by_more_load():
    silent = {"b": Share(0.0, {}, True, None)}

    def rows(level):
        return (
            trial({}, level, level, failure="b answered nothing", models=silent) if level < 4 else trial({}, level, 9)
        )

    _, found = tries(rows, config=AT_ONCE, every_level=True)
    assert [row.level for row in found.rows(DEFAULT)][:3] == [1, 2, 4]


def test_a_group_that_is_written_out_is_the_default():
    """With the name and the empty lists that a server fills in."""
    group = {"name": "m", "kind": "KIND_CPU", "count": 1, "gpus": [], "secondary_devices": []}
    config = {**CONFIG, "instance_group": [group]}
    for text, same in (('[{"kind": "KIND_CPU", "count": 1}]', True), ('[{"kind": "KIND_CPU", "count": 2}]', False)):
        made = configured(variant(instance_group=text), config)["instance_group"]
        assert (made == [group]) is same
        assert made[0]["gpus"] == []
    other = [{"kind": "KIND_CPU", "count": 1}] * 2
    assert configured(variant(instance_group=json.dumps(other)), config)["instance_group"] == other
