"""The configuration as it is printed: every default, the form of each kind of value, and what a default changes."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.loading import load
from tisfast.config import schema
from tisfast.config.defaults import normalise, to_dict
from tisfast.config.error_report import Report
from tisfast.config.model_config import ConfigDraft, finish, parse, parse_json_form
from tisfast.config.pbtxt import parse_text

DEFAULTS = {
    "name": "m",
    "platform": "",
    "backend": "python",
    "runtime": "",
    "version_policy": {"latest": {"num_versions": 1}},
    "max_batch_size": 0,
    "input": [],
    "output": [],
    "batch_input": [],
    "batch_output": [],
    "default_model_filename": "",
    "cc_model_filenames": {},
    "metric_tags": {},
    "parameters": {},
    "model_warmup": [],
}


def printed(text, **options):
    return load(text, **options).as_dict


def test_a_model_that_says_nothing_has_every_default():
    found = printed("")
    assert {key: found[key] for key in DEFAULTS} == DEFAULTS
    assert set(found) == {*DEFAULTS, "instance_group", "optimization"}


def test_an_instance_group_has_every_default():
    assert printed("")["instance_group"] == [
        {"name": "m", "kind": "KIND_CPU", "count": 1, "gpus": [], "secondary_devices": [], "profile": [],
         "passive": False, "host_policy": ""}
    ]  # fmt: skip


def test_buffers_are_pinned_unless_the_file_says_otherwise():
    assert printed("")["optimization"] == {
        "priority": "PRIORITY_DEFAULT",
        "input_pinned_memory": {"enable": True},
        "output_pinned_memory": {"enable": True},
        "gather_kernel_buffer_threshold": 0,
        "eager_batching": False,
    }
    found = printed("optimization { output_pinned_memory { enable: false } }")["optimization"]
    assert (found["input_pinned_memory"], found["output_pinned_memory"]) == ({"enable": True}, {"enable": False})


def test_a_tensor_has_every_default():
    assert printed('input { name: "A" data_type: TYPE_FP32 dims: 1 }')["input"] == [
        {"name": "A", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [1], "is_shape_tensor": False,
         "allow_ragged_batch": False, "optional": False, "is_non_linear_format_io": False}
    ]  # fmt: skip
    assert printed('output { name: "B" data_type: TYPE_FP32 dims: 1 }')["output"] == [
        {"name": "B", "data_type": "TYPE_FP32", "dims": [1], "label_filename": "", "is_shape_tensor": False,
         "is_non_linear_format_io": False}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("version_policy { all { } }", "version_policy", {"all": {}}),
        ("version_policy { }", "version_policy", {"latest": {"num_versions": 1}}),
        ("version_policy { specific { versions: [ 3, 1 ] } }", "version_policy", {"specific": {"versions": [3, 1]}}),
        ("max_batch_size: 4 dynamic_batching { }", "dynamic_batching", {"preferred_batch_size": [4]}),
        ("dynamic_batching { }", "dynamic_batching", {"preferred_batch_size": []}),
        ("max_batch_size: 4 dynamic_batching { preferred_batch_size: 2 }", "dynamic_batching",
         {"preferred_batch_size": [2]}),
        ("sequence_batching { }", "sequence_batching", {"max_sequence_idle_microseconds": 1000000}),
        ("sequence_batching { max_sequence_idle_microseconds: 7 }", "sequence_batching",
         {"max_sequence_idle_microseconds": 7}),
        ("model_transaction_policy { }", "model_transaction_policy", {"decoupled": False}),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy", {"decoupled": True}),
        ("response_cache { }", "response_cache", {"enable": False}),
        ('parameters { key: "b" value { string_value: "2" } } parameters { key: "a" }', "parameters",
         {"a": {"string_value": ""}, "b": {"string_value": "2"}}),
        ('metric_tags { key: "k" value: "v" }', "metric_tags", {"k": "v"}),
    ],
)  # fmt: skip
def test_a_choice_is_printed_where_it_is_made(text, key, value):
    found = printed(text)[key]
    assert {name: found[name] for name in value} == value if isinstance(value, dict) and value else found == value


@pytest.mark.parametrize(("size", "preferred"), [(0, []), (1, [1]), (8, [8])])
def test_the_oldest_strategy_prefers_full_batches(size, preferred):
    found = printed(f"max_batch_size: {size} sequence_batching {{ oldest {{ }} }}")["sequence_batching"]["oldest"]
    assert found["preferred_batch_size"] == preferred


@pytest.mark.parametrize("key", ["dynamic_batching", "sequence_batching", "ensemble_scheduling", "response_cache",
                                 "model_transaction_policy", "model_metrics", "model_operations"])  # fmt: skip
def test_a_message_that_is_not_written_is_not_printed(key):
    assert key not in printed("")


@pytest.mark.parametrize(
    ("gpus", "on_cpu", "kind"), [((), False, "KIND_CPU"), ((0,), False, "KIND_GPU"), ((0,), True, "KIND_CPU")]
)
def test_instances_are_where_their_backend_wants_them(gpus, on_cpu, kind):
    message = schema.model_config()
    normalise(message, "m", gpus, on_cpu=on_cpu)
    assert to_dict(message)["instance_group"][0]["kind"] == kind


def test_a_backend_that_stays_on_the_cpu_gets_a_gpu_where_the_file_says_so():
    for text, kind in (("", "KIND_CPU"), ("instance_group { kind: KIND_GPU }", "KIND_GPU")):
        config = finish(parse(f'backend: "openvino" {text}', "f"), "m", gpus=(0,))
        assert config.as_dict["instance_group"][0]["kind"] == kind


def number_of(text):
    text = f"model_metrics {{ metric_control {{ histogram_options {{ buckets: {text} }} }} }}"
    message = parse_text(text, Report("f"))
    (found,) = to_dict(message)["model_metrics"]["metric_control"][0]["histogram_options"]["buckets"]
    return json.dumps(found)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("1", "1"), ("1.0", "1"), ("-3.0", "-3"), ("0", "0"), ("-0.0", "-0.0"), ("0.1", "0.1"),
        ("1e14", "100000000000000"), ("1e15", "1000000000000000.0"),
        ("1e-7", "1e-07"), ("0.30000000000000004", "0.30000000000000004"),
    ],
)  # fmt: skip
def test_a_number_is_printed_as_shortly_as_it_can_be(written, shown):
    assert number_of(written) == shown


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_double_is_the_number(value):
    assert float(number_of(repr(value))) == value


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_printed_float_is_the_number_and_short(value):
    message = schema.model_config()
    message.sequence_batching.direct.minimum_slot_utilization = value
    found = to_dict(message)["sequence_batching"]["direct"]["minimum_slot_utilization"]
    again = schema.model_config()
    again.sequence_batching.direct.minimum_slot_utilization = found
    assert again == message and math.copysign(1, found) == math.copysign(1, value)
    assert isinstance(found, int) or len(f"{found:e}".partition("e")[0].replace(".", "").strip("-")) <= 9


def test_both_forms_of_a_configuration_are_one_configuration():
    text = 'max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: [ 4, -1 ] } dynamic_batching { }'
    config = load(text)
    assert finish(parse_json_form(json.dumps(config.as_dict), "j"), "m").message == config.message


def test_a_model_without_a_file_has_the_defaults_of_its_folder():
    draft = ConfigDraft.empty("m/config.pbtxt")
    assert draft.report.file == "m/config.pbtxt" and not draft.message.ListFields()
    draft.message.backend = "python"
    config = finish(draft, "m")
    assert (config.name, config.file, config.backend, config.max_batch_size) == ("m", "m/config.pbtxt", "python", 0)


@pytest.mark.parametrize(("text", "field", "value"), [
    ('default_model_filename: "x.py"', "default_model_filename", "x.py"),
    ("model_transaction_policy { decoupled: true }", "decoupled", True),
    ("max_batch_size: 3", "max_batch_size", 3),
    ('name: "m"', "name", "m"),
    ("", "partial", False),
    ("", "gpus", ()),
    ("", "ensemble", None),
    ("", "warm_up", ()),
])  # fmt: skip
def test_each_part_of_the_result(text, field, value):
    assert getattr(load(text), field) == value


def test_the_places_of_keys_stay_known_for_later_errors():
    config = load('\ninput { name: "A" data_type: TYPE_FP32\n dims: 1 }')
    assert config.places["input", 0, "dims"] == (3, 2)
    with pytest.raises(TypeError):
        config.places["x",] = None


def test_equal_files_are_equal_configurations():
    assert load("max_batch_size: 3") == load("max_batch_size:3") != load("max_batch_size: 4")
    assert "backends" not in repr(load(""))
