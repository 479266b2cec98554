"""The JSON form: errors by key, and round trips through protobuf's own printer and ours."""
# ruff: noqa: E501 - one case, one line

import json

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.messages import messages
from tisfast import limits
from tisfast.config.defaults import to_dict
from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json


def read(text):
    report = Report("j")
    return parse_json(text, report), [str(error) for error in report.errors]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name":\n }', "j:2:2: not JSON"),
        ("[]", "j: the model configuration takes an object, found a list"),
        ('{"max_batch_sise": 1}', "j: unknown key 'max_batch_sise' in the model configuration; did you mean 'max_batch_size'?"),
        ('{"max_batch_size": "x"}', "j: 'max_batch_size' takes an int32, found string 'x'"),
        ('{"max_batch_size": 1.5}', "j: 'max_batch_size' takes an int32, found 1.5"),
        ('{"max_batch_size": true}', "j: 'max_batch_size' takes an int32, found true"),
        ('{"max_batch_size": 3000000000}', "j: 'max_batch_size' is 3000000000, outside int32"),
        ('{"name": 5}', "j: 'name' takes a string in quotes, found 5"),
        ('{"name": "\\ud800"}', "j: 'name' holds half of a surrogate pair"),
        ('{"input": {}}', "j: 'input' takes a list, found an object; write [ ... ]"),
        ('{"input": [3]}', "j: 'input' takes an object, found 3"),
        ('{"input": [{"optional": 1}]}', "j: 'optional' takes true or false, found 1"),
        ('{"input": [{"data_type": "FP32"}]}', "j: unknown value 'FP32' for 'data_type'; did you mean 'TYPE_FP32'?"),
        ('{"parameters": []}', "j: 'parameters' takes an object, found a list"),
        ('{"name": "a", "name": "b"}', "j: 'name' is given twice; keep one of them"),
        ('{"parameters": {"a": {}, "a": {}}}', "j: 'parameters' has the key 'a' twice; keep one of them"),
        ('{"dynamic_batching": {}, "sequence_batching": {}}', "j: 'sequence_batching' cannot stand beside 'dynamic_batching'"),
        ("[" * 200000, "j: the JSON is nested too deep"),
    ],
)  # fmt: skip
def test_an_error_names_its_key(text, expected):
    _, errors = read(text)
    assert len(errors) == 1
    assert errors[0].startswith(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{parameters: {a: {string_value: "x"}}}', {"a": "x"}),
        ("{'parameters': {'a': {'string_value': 'x\"y'}}}", {"a": 'x"y'}),
        ("{'parameters': {'a': {'string_value': 'it\\'s, {b: 1,}'}}}", {"a": "it's, {b: 1,}"}),
        ('{"parameters": {"a": {"string_value": "x",},},}', {"a": "x"}),
        ('{"input": [ {"name": "i", "dims": [ 1, ], } , ], parameters : {$a : {string_value: "c: \'d\'"}}}', {"$a": "c: 'd'"}),
        ('{"parameters": {"a": {"string_value": "x\ny\tz"}}}', {"a": "x\ny\tz"}),
    ],
)  # fmt: skip
def test_what_protobufs_reader_takes_beyond_json_is_taken(text, said):
    message, errors = read(text)
    assert not errors
    assert {key: value.string_value for key, value in message.parameters.items()} == said


@pytest.mark.parametrize(
    "text",
    [
        '{"max_batch_size": 1,,}', '{"name": m}', '{"name": "m" /* x */}', '{"name": "m"} x', '{"parameters": {a-b: {}}}',
        '{"parameters": {1a: {}}}', '{"parameters": {true: {}}}', '{"max_batch_size": 0x1}', '{,"name": "m"}', "{'name': 'm",
        '{"name": "m', "{'name': 'm\\",
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_refused(text):
    _, (error,) = read(text)
    assert error.startswith("j:") and ": not JSON: " in error


def test_what_is_not_quite_json_is_taken_up_to_a_bound(monkeypatch):
    assert not read("{name: 'm'}")[1]
    monkeypatch.setattr(limits, "CONFIG_LENIENT_CHARS_MAX", 10)
    assert read("{name: 'm'}")[1][0].startswith("j:1:2: not JSON")
    assert not read('{"name": "m"}')[1]


def test_an_integer_of_thousands_of_digits_is_refused():
    _, (error,) = read('{"max_batch_size": ' + "9" * 5000 + "}")
    assert error.startswith("j: not JSON: Exceeds the limit")


def test_keys_that_come_twice_are_named_once():
    _, errors = read('{"name": "a", "version_policy": {}, "name": "b", "version_policy": {}, "name": "c"}')
    assert [error.partition(" ")[2].split("'")[1] for error in errors] == ["name", "version_policy"]


def test_all_errors_are_reported():
    _, errors = read('{"nam": 1, "max_batch_size": "x", "input": [{"dims": ["y", 2]}]}')
    assert len(errors) == 3


def test_protobufs_json_spellings_are_understood():
    message, errors = read('{"maxBatchSize": 4, "input": [{"dataType": 11, "dims": ["4", 2]}], "runtime": null}')
    assert not errors
    assert (message.max_batch_size, message.input[0].data_type, list(message.input[0].dims)) == (4, 11, [4, 2])


@settings(max_examples=60, deadline=None)
@given(messages())
def test_what_protobuf_prints_reads_back_equal(message):
    back, errors = read(json_format.MessageToJson(message, preserving_proto_field_name=True))
    assert not errors
    assert back == message


@settings(max_examples=100, deadline=None)
@given(messages())
def test_our_own_form_reads_back_equal(message):
    text = json.dumps(to_dict(message))
    back, errors = read(text)
    assert not errors
    assert back == message


def test_a_negative_zero_stays_one():
    message, _ = read('{"sequence_batching": {"control_input": [{"control": [{"fp32_false_true": [-0.0, 1]}]}]}}')
    assert "[-0.0, 1]" in json.dumps(to_dict(message))


@settings(max_examples=60, deadline=None)
@given(messages())
def test_every_default_is_printed(message):
    printed = to_dict(message)
    optional = {"version_policy", "optimization", "dynamic_batching", "sequence_batching", "ensemble_scheduling",
                "model_operations", "model_transaction_policy", "model_repository_agents", "response_cache",
                "model_metrics"}  # fmt: skip
    assert set(printed) >= {field.name for field in message.DESCRIPTOR.fields} - optional


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "input", "dims", "parameters", "version_policy", "zz"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_no_json_makes_the_reader_raise(value):
    read(json.dumps(value))
