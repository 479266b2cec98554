"""Merging what auto_complete_config returned."""
# ruff: noqa: E501 - one case, one line

import json

import pytest

from tisfast.config.auto_complete import merge_completed
from tisfast.config.error_report import ConfigErrors
from tisfast.config.model_config import finish, parse

A = {"name": "A", "data_type": "TYPE_FP32", "dims": [4]}


def loaded(text, partial=True):
    return finish(parse('backend: "python"\n' + text, "m/config.pbtxt"), "m", partial=partial)


def merged(text, **changes):
    config = loaded(text)
    return merge_completed(config, json.dumps(json.loads(json.dumps(config.as_dict)) | changes))


def refused(text, **changes):
    with pytest.raises(ConfigErrors) as caught:
        merged(text, **changes)
    return str(caught.value)


def test_nothing_changed_is_nothing_changed():
    text = 'max_batch_size: 4 dynamic_batching { } input { name: "A" data_type: TYPE_FP32 dims: 4 }'
    assert merged(text) == loaded(text, partial=False)


def test_tensors_batching_and_policy_are_filled_in():
    config = merged("", max_batch_size=8, input=[A], output=[A | {"name": "B"}], dynamic_batching={})
    assert [t.name for t in config.inputs + config.outputs] == ["A", "B"]
    assert config.scheduler.dynamic
    assert config.as_dict["dynamic_batching"]["preferred_batch_size"] == [8]
    assert list(config.as_dict).index("dynamic_batching") < list(config.as_dict).index("instance_group")
    assert not config.partial


def test_missing_type_and_dims_of_the_file_are_filled_in():
    assert merged('input { name: "A" }', input=[A]).inputs[0].dims == (4,)


def test_what_stays_missing_is_an_error_at_the_files_line():
    assert refused('input { name: "A" dims: 4 }').startswith(
        "m/config.pbtxt:2:7: model input 'A' must specify 'data_type'"
    )


def test_a_partial_file_is_still_checked():
    with pytest.raises(ConfigErrors, match="dimension must be integer"):
        loaded('input { name: "A" dims: 0 }')


def test_max_batch_size_may_grow():
    assert merged("max_batch_size: 4", max_batch_size=8).max_batch_size == 8


FILE = (
    'max_batch_size: 4 input { name: "A" data_type: TYPE_INT32 dims: 5 } model_transaction_policy { decoupled: false }'
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_batch_size": 2}, "configuration specified max_batch_size 4, but in auto-complete-config function for model 'm' specified max_batch_size 2"),
        ({"input": [A | {"dims": [5]}]}, "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'A', model provides TYPE_FP32"),
        ({"input": [A | {"data_type": "TYPE_INT32"}]}, "model 'm', tensor 'A': the model expects dims [4] but the model configuration specifies dims [5]"),
        ({"input": []}, "input 'A' was removed in auto-complete-config function for model 'm'"),
        ({"model_transaction_policy": {"decoupled": True}}, "trying to change decoupled property in auto-complete-config for model 'm', which is already set to 'False'."),
        ({"parameters": {"x": {"string_value": "y"}}}, "'parameters' was changed in auto-complete-config function for model 'm'; only these can be set there"),
        ({"output": [A | {"data_type": "TYPE_NOPE"}]}, "unknown value 'TYPE_NOPE' for 'data_type'"),
        ({"nope": 1}, "unknown key 'nope'"),
        ({"output": [A | {"dims": [0]}]}, "model output 'A' dimension must be integer >= 1"),
    ],
)  # fmt: skip
def test_contradictions(changes, expected):
    assert expected in refused(FILE, **changes)


def test_decoupled_is_filled_in():
    assert merged("", model_transaction_policy={"decoupled": True}).decoupled


def test_a_reply_that_is_no_json():
    with pytest.raises(ConfigErrors, match="not JSON"):
        merge_completed(loaded(""), "None")
