"""What `--mix` reads, and in which order models are drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tisfast.bench.arguments import read
from tisfast.bench.mixture import drawn
from tisfast.errors import ConfigError


@pytest.fixture
def mix_of(tmp_path):
    def write(document):
        path = tmp_path / "mix.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


def test_each_model_has_its_data(mix_of, tmp_path):
    path = mix_of(
        {
            "models": [
                {"model": "a", "version": 2, "weight": 0.5, "input_data": "a.json", "parameters": {"x": 1}},
                {"model": "b", "shape": {"A": [2, 3]}, "input_data": ["zero"]},
            ]
        }
    )
    asked = read(["--mix", str(path), "-i", "grpc", "--request-parameter", "y:2:int"]).asked
    a, b = asked.mix
    assert (a.name, a.weight, b.name, b.weight) == ("a:2", 0.5, "b", 1)
    assert a.data.files == (str(tmp_path / "a.json"),) and a.data.parameters == {"y": 2, "x": 1}
    assert b.data.zero and not a.data.zero and b.data.shapes == (("A", (2, 3)),)
    assert asked.model == "a:2 (0.5), b (1)"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("{", "it is no JSON"),
        ('{"models": [{"model": "\\ud800"}]}', "it is no JSON ('\\ud800' has half of a surrogate pair"),
        ('{"models": [{"model": "a", "version": ' + "9" * 5000 + "}]}", "a number in it has too many digits"),
        ("[" * 100_000, "lists or objects lie too deep"),
        ([], 'it has no list "models"'),
        ({"models": []}, "it has 0 models"),
        ({"models": [{}]}, 'models[0] has no "model"'),
        ({"models": [{"model": "a", "wait": 1}]}, 'models[0]: key "wait" is not known'),
        ({"models": [{"model": "a", "weight": 0}]}, "models[0].weight is 0"),
        ({"models": [{"model": "a", "weight": True}]}, "models[0].weight is true"),
        ({"models": [{"model": "a", "weight": 1e308}]}, "models[0].weight is 1e+308; write 1e-12 to 1e+12"),
        ({"models": [{"model": "a", "weight": 10**400}]}, "models[0].weight is 1000"),
        ({"models": [{"model": "a", "version": None}]}, "models[0].version is null"),
        ({"models": [{"model": "a"}, {"model": "a"}]}, "a stands in it twice"),
        ({"models": [{"model": "a", "shape": {"A": [-1]}}]}, "models[0].shape is none"),
        ({"models": [{"model": "a", "shape": []}]}, "models[0].shape is none"),
        ({"models": [{"model": "a", "input_data": 5}]}, "models[0].input_data is 5"),
        (
            {"models": [{"model": "a", "input_data": ["zero", "a.json"]}]},
            "models[0].input_data has data made, and files",
        ),
        ({"models": [{"model": "a", "parameters": {"x": []}}]}, "models[0].parameters are names"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(mix_of, document, text):
    with pytest.raises(ConfigError) as refused:
        read(["--mix", str(mix_of(document))])
    assert text in str(refused.value)


@pytest.mark.parametrize(
    "typed",
    [
        ["-m", "a"],
        ["-x", "1"],
        ["--shape", "A:1"],
        ["--input-data", "x"],
        ["--vs", "localhost:1"],
        ["--fixed-schedule"],
    ],
)
def test_flags_of_one_model_are_refused_beside_it(mix_of, typed):
    with pytest.raises(ConfigError, match="says something of one model"):
        read(["--mix", str(mix_of({"models": [{"model": "a"}]})), *typed])


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="it cannot be read"):
        read(["--mix", str(tmp_path / "no.json")])


def test_models_are_drawn_by_weight_and_their_steps_come_in_turn():
    models, order = drawn([2, 3], [3, 1], seed=7)
    assert models.tolist() == [0, 0, 1, 1, 1]
    share = float((models[order] == 0).mean())
    assert abs(share - 0.75) < 0.01
    for number, steps in ((0, [0, 1]), (1, [2, 3, 4])):
        turns = order[models[order] == number]
        assert turns[:9].tolist() == (steps * 5)[:9]
    assert np.array_equal(order, drawn([2, 3], [3, 1], seed=7)[1])
    assert not np.array_equal(order, drawn([2, 3], [3, 1], seed=8)[1])


def test_each_step_of_a_rare_model_comes():
    _, order = drawn([1, 5000], [99, 1], seed=0)
    assert len(np.unique(order)) == 5001
