"""Several models: what is said of one of them, the joint space, and aims of each."""

from __future__ import annotations

import json

import pytest

from tests.analyze.made_trials import served, trial
from tisfast.analyze.aims import Aims, Constraint, Simplicity, ranking, value_of
from tisfast.analyze.arguments import read
from tisfast.analyze.explain import explained
from tisfast.analyze.space import Automatic, Axis, Space
from tisfast.analyze.subject import Subject
from tisfast.analyze.table import table
from tisfast.analyze.trials import Share, from_json, joined, to_json
from tisfast.analyze.variants import DEFAULT, Variant
from tisfast.errors import BadRequest, ConfigError

OWN = ["--model-repository", "models"]
BATCHES = {"max_batch_size": 8, "instance_group": [{"count": 1}]}
SINGLE = {"max_batch_size": 0, "instance_group": [{"count": 2}]}
BOTH = Subject({"a": BATCHES, "b": SINGLE})


def share(throughput, p99):
    return Share(throughput, {"avg": p99 / 2, "p99": p99}, True, served())


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
    again = joined(rows[0], rows[1], 1)
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
