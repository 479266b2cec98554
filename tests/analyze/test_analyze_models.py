"""Several models: what is said of one of them, the joint space, and aims of each."""

from __future__ import annotations

import json

import pytest

from tests.analyze.made_trials import served, trial
from tests.bench.made_levels import latencies, level_of, server_of
from tisfast.analyze.aims import Aims, Constraint, value_of
from tisfast.analyze.arguments import read
from tisfast.analyze.explain import explained
from tisfast.analyze.ranking import Simplicity, ranking
from tisfast.analyze.space import Automatic, Axis, Space
from tisfast.analyze.subject import Subject
from tisfast.analyze.table import csv_text, table
from tisfast.analyze.trials import Share, from_json, joined, to_json, trial_of
from tisfast.analyze.variants import DEFAULT, Variant
from tisfast.bench.results import Errors, GpuUse, Usage
from tisfast.errors import BadRequest, ConfigError

OWN = ["--model-repository", "models"]
BATCHES = {"max_batch_size": 8, "instance_group": [{"count": 1}]}
SINGLE = {"max_batch_size": 0, "instance_group": [{"count": 2}]}
BOTH = Subject({"a": BATCHES, "b": SINGLE})


def share(throughput, p99):
    return Share(throughput, {"avg": p99 / 2, "p99": p99}, True, served())


def answered(durations=None, **more):
    """A level without errors."""
    return level_of(latencies(100) if durations is None else durations, errors=Errors(0, 0, 0, {}), **more)


def row(settings, a, b):
    return trial(settings, 4, a[0] + b[0], served=served(), models={"a": share(*a), "b": share(*b)})


def test_flags_say_what_is_of_one_model():
    given = read(
        ["-m", "a=3,b", *OWN, "--instances", "a:1:3", "--queue-delays", "0,5", "--set", "b:parameters.x=1,2"]
        + ["--objective", "a:p99=2", "--objective", "latency_avg", "--constraint", "b:throughput>=5"]
        + ["--latency-budget", "9", "--max-memory", "100"]
    )
    assert [(each.name, each.weight) for each in given.asked.mix] == [("a", 3), ("b", 1)]
    assert {axis.name: axis.values for axis in given.space.axes} == {
        "a:instances": (1, 2, 3),
        "a:max_queue_delay_microseconds": (0, 5),
        "b:max_queue_delay_microseconds": (0, 5),
        "b:parameters.x": (1, 2),
    }
    assert dict(given.aims.objectives) == {"a:latency_p99": 2, "a:latency_avg": 1, "b:latency_avg": 1}
    assert [each.text for each in given.aims.constraints] == [
        "b:throughput >= 5/s",
        "a:latency_p99 <= 9 ms",
        "b:latency_p99 <= 9 ms",
        "memory <= 100 MB",
    ]
    assert str(given.output) == "analyze-a-b"
    assert read(["-m", "1,2", *OWN, "--instances", "1:3"]).space.axes[0].values == (3,)  # model 1's


def test_a_file_of_bench_says_what_each_is_sent(tmp_path):
    file = tmp_path / "mix.json"
    models = [{"model": "a", "weight": 2, "shape": {"X": [4]}}, {"model": "b"}]
    file.write_text(json.dumps({"models": models}))
    given = read(["--mix", str(file), *OWN])
    assert given.models == ("a", "b")
    assert given.asked.mix[0].data.shapes == (("X", (4,)),)
    file.write_text(json.dumps({"models": [{"model": "a", "version": 1}]}))
    with pytest.raises(ConfigError, match="a:1 has a version"):
        read(["--mix", str(file), *OWN])


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["-m", "a,a"], "'a' stands in it twice"),
        (["-m", "a,"], "'' stands in it twice, or is empty"),
        (["-m", "a=0,b"], "the weight of 'a' is"),
        (["-m", "a=x,b"], "the weight of 'a' is"),
        (["-m", ",".join(f"m{at}" for at in range(17))], "it has 17 models, and at most 16"),
        (["-m", "a,b", "--formats", "a,b"], "give one of -m MODEL"),
        (["--formats", "a"], "name two models or more"),
        (["-m", "a,b", "-x", "1"], "-x says something of one model"),
        (["-m", "a,b", "--instances", "c:1,2"], "'c' is none of the models; there are a, b"),
        (["-m", "a,b", "--set", "c:x=1"], "'c' is none of the models"),
        (["-m", "a,b", "--set", "a:x=1", "--set", "a:x=2"], "a:x is given twice"),
        (["-m", "a,b", "--objective", "a:memory"], "memory is known of all models together"),
        (["-m", "a,b", "--objective", "c:p99"], "'c:p99' is no metric"),
    ],
)
def test_what_is_wrong_of_several_is_told(flags, told):
    with pytest.raises(ConfigError) as error:
        read([*flags, *OWN])
    assert told in str(error.value)


def test_a_variant_has_the_settings_of_each_model():
    variant = Variant((("a:instances", 3), ("b:parameters.x", 1)))
    made = BOTH.configured(variant)
    assert made["a"] == {**BATCHES, "instance_group": [{"count": 3}]}
    assert made["b"] == {**SINGLE, "parameters": {"x": {"string_value": "1"}}}
    assert BOTH.configured(DEFAULT) == {"a": BATCHES, "b": SINGLE}
    assert BOTH.in_force("b:instances") == 2
    with pytest.raises(BadRequest, match="model 'b' has max_batch_size 0"):
        BOTH.space(Space((Axis("b:max_batch_size", (1, 2)),)), Automatic())


def test_the_joint_space_is_bounded():
    found = BOTH.space(None, Automatic())
    assert [axis.name for axis in found.axes] == ["a:instances", "a:max_batch_size", "b:instances"]
    assert found.start(BOTH.in_force) == (0, 3, 1)
    many = Subject({f"m{at}": BATCHES for at in range(6)}).space(None, Automatic())
    assert 1 < many.count <= 10_000
    assert len(many.axes) == 12
    assert all(len(axis.values) > 1 for axis in many.axes[:6])


def test_formats_are_served_one_at_a_time():
    formats = Subject({"a": BATCHES, "b": BATCHES}, formats=True)
    space = formats.space(None, Automatic(instances=(1, 2), batches=(4, 8)))
    assert [axis.name for axis in space.axes] == ["format", "instances", "max_batch_size"]
    other = Variant((("format", "b"), ("instances", 2), ("a:parameters.x", 1)))
    assert formats.configured(other) == {"b": {**BATCHES, "instance_group": [{"count": 2}]}}
    assert formats.served(DEFAULT) == ["a"]
    assert space.start(formats.in_force) == (0, 0, 1)
    mixed = Subject({"a": BATCHES, "b": SINGLE}, formats=True).space(None, Automatic())
    assert [axis.name for axis in mixed.axes] == ["format", "a:instances", "a:max_batch_size", "b:instances"]


def test_each_model_has_its_bounds_and_objectives():
    rows = [row({}, (100, 10), (50, 10)), row({"a:instances": 2}, (90, 30), (80, 5))]
    space = Simplicity(Space((Axis("a:instances", (1, 2)),)))
    aims = Aims((("a:throughput", 1.0), ("b:throughput", 3.0)))
    first, second = ranking(rows, aims, space)
    assert first.trial is rows[1]
    assert first.gain == pytest.approx(100 * ((0.9 * 1.6**3) ** 0.25 - 1))
    bound = Constraint("a:latency_p99", 20, True)
    bounded = ranking(rows, Aims(aims.objectives, (bound,)), space)
    assert [each.broken for each in bounded] == [[], ["a:latency_p99 is 30 ms, not <= 20 ms"]]
    assert value_of(rows[0], "c:throughput") is None
    assert second.gain == pytest.approx(0)


def test_figures_of_each_model_are_shown_and_kept():
    rows = [row({}, (100, 10), (50, 10)), row({"a:instances": 2}, (90, 30), (80, 5))]
    aims = Aims((("b:throughput", 1.0),))
    found = ranking(rows, aims, Simplicity(Space((Axis("a:instances", (1, 2)),))))
    lines = table(found).splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [["a", "90"], ["b", "80"]]
    said = "\n".join(explained(found, rows, aims, BOTH))
    assert "Of b: 50 inferences/s became 80, and p99 10 ms became 5 ms; the share of the queue went from 10 %" in said
    again = joined(joined(rows[0], rows[0], 1), rows[1], 2)
    assert again.models["a"].throughput == 95
    assert again.models["a"].latency_ms["p99"] == 20
    assert from_json(json.loads(json.dumps(to_json(again)))) == again


def test_memory_of_gpus_is_bounded_and_kept():
    rows = [trial({}, 4, 100, gpu_memory_mb=500.0), trial({"instances": 2}, 4, 200, gpu_memory_mb=900.0)]
    given = read(["-m", "m", *OWN, "--max-gpu-memory", "600", "--objective", "gpu_used_memory"])
    assert given.aims.objectives == (("gpu_memory", 1.0),)
    aims = Aims(constraints=given.aims.constraints)
    found = ranking(rows, aims, Simplicity(Space((Axis("instances", (1, 2)),))))
    assert [each.broken for each in found] == [[], ["gpu_memory is 900 MB, not <= 600 MB"]]
    assert "500 MB" in table(found)
    assert ranking([trial({}, 4, 100)], aims, Simplicity(Space(())))[0].broken == ["gpu_memory is not known"]
    again = joined(rows[0], rows[1], 1)
    assert again.gpu_memory_mb == 900
    assert from_json(json.loads(json.dumps(to_json(again)))) == again


def test_a_model_without_figures_does_not_win():
    """`b` has answered nothing in the last row, and its latency is an objective."""
    rows = [row({}, (50, 1), (50, 10)), row({"a:instances": 2}, (55, 1), (55, 9))]
    silent = Share(0.0, {}, True, None)
    starved = trial({"a:instances": 3}, 4, 130, models={"a": share(130, 1), "b": silent})
    aims = Aims((("throughput", 1.0), ("b:latency_p99", 1.0)))
    simple = Simplicity(Space((Axis("a:instances", (2, 3)),)))
    assert ranking([*rows, starved], aims, simple)[-1].trial is starved
    assert ranking([*rows, starved], Aims((("b:throughput", 1.0),)), simple)[-1].trial is starved
    text = csv_text(1, Subject({"a": BATCHES, "b": BATCHES}), ranking([starved], aims, simple))
    assert text.splitlines()[2].split(",")[-5] == ""


def test_a_row_whose_model_answered_nothing_has_failed():
    silent = answered([[]])
    found = trial_of(DEFAULT, answered(models={"a": answered(), "b": silent}), 1, None)
    assert found.failure.startswith("no request of model 'b' was answered within the measured windows")
    assert trial_of(DEFAULT, answered(models={"a": answered()}), 1, None).failure == ""


def test_no_memory_of_gpus_is_a_figure():
    """None of two GPUs is used, then one of them; of a third nothing is known."""
    aims = Aims((("gpu_memory", 1.0),), (Constraint("gpu_memory", 500, True),))
    uses = [{"G": GpuUse(0, False, None, None), "H": GpuUse(memory, False, None, None)} for memory in (0, 10**9, None)]
    none, some, unknown = (
        trial_of(Variant((("x", at),)), answered(server=server_of(100, usage=usage)), 1, None)
        for at, usage in enumerate(Usage(7, "s", 1, 10, 20, 30, gpus) for gpus in uses)
    )
    assert (none.gpu_memory_mb, some.gpu_memory_mb, unknown.gpu_memory_mb) == (0, 1000, None)
    assert not aims.broken(none)
    assert aims.gain(none, some) > 0 > aims.gain(some, none)
    assert aims.gain(none, none) == 0


def test_measurements_are_put_together_by_what_is_known():
    """`b` answers in the second turn alone; memory is missing in one of them."""
    silent = Share(0.0, {}, True, None)
    first = trial({}, 4, 100, memory_mb=100.0, gpu_memory_mb=3000.0, served=served(queue=100), models={"b": silent})
    second = trial({}, 4, 200, memory_mb=150.0, served=served(queue=300, executions=25), models={"b": share(10, 900)})
    found = joined(joined(first, first, 1), second, 2)
    assert found.memory_mb == 150
    assert found.gpu_memory_mb == 3000
    assert found.models["b"].latency_ms["p99"] == 900
    assert found.models["b"].throughput == 5
    assert found.served.batch == 1.6  # 200 requests in 125 executions
    assert found.served.queue_us == 200
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


def test_a_variant_has_no_settings_of_formats_that_it_does_not_serve():
    formats = Subject({"a": BATCHES, "b": BATCHES}, formats=True)
    axes = (Axis("a:instances", (1, 4)), Axis("b:instances", (1, 4)))
    space = formats.space(Space(axes), Automatic())
    made = space.variant((1, 1, 0))
    assert made.text == "format b, b:instances 1"
    assert space.has(made)
    assert not space.has(Variant((("format", "b"), ("a:instances", 4), ("b:instances", 1))))
    assert Simplicity(space)(trial(dict(made.settings), 4, 100))[0] == 1


def test_formats_without_figures_are_named():
    formats = Subject({"a": BATCHES, "b": BATCHES, "c": BATCHES}, formats=True)
    rows = [trial({}, 4, 100), trial({"format": "b"}, 4, 0, failure="it does not load")]
    found = ranking(rows, Aims(), Simplicity(Space(())))
    said = "\n".join(explained(found, rows, Aims(), formats))
    assert "By formats, the best of each: a: 100/s, b: it failed, c: not measured." in said


def test_what_is_said_of_one_format_is_instead_of_what_is_said_of_all():
    for flags in (["B:3,4", "1:2"], ["1:2", "B:3,4"]):
        found = read(["--formats", "A,B", *OWN, *(f"--instances={each}" for each in flags)]).space
        assert {axis.name: axis.values for axis in found.axes} == {"A:instances": (1, 2), "B:instances": (3, 4)}
    together = read(["-m", "A,B", *OWN, "--instances", "A:5,6", "--instances", "1:2"]).space
    assert {axis.name: axis.values for axis in together.axes} == {"A:instances": (5, 6), "B:instances": (1, 2)}
    with pytest.raises(ConfigError, match="A:instances is given twice"):
        read(["-m", "A,B", *OWN, "--instances", "A:1", "--instances", "A:2"])
    with pytest.raises(ConfigError, match="instances is given twice"):
        read(["-m", "A,B", *OWN, "--instances", "1", "--instances", "2"])
