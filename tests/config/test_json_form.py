"""The JSON form: errors by key, and round trips through protobuf's own printer and ours."""
# ruff: noqa: E501 - one case, one line

import json

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.loading import shown
from tests.config.messages import messages
from tisfast import limits
from tisfast.config.defaults import to_dict
from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json


def read(text):
    report = Report("j")
    return parse_json(text, report), [str(error) for error in report.errors]


REFUSED = [
    (
        '{"max_batch_sise": 1}',
        "max_batch_sise | unknown key 'max_batch_sise' in the model configuration | did you mean 'max_batch_size'?",
    ),
    (
        '{"preferred_batch_size": [4]}',
        "preferred_batch_size | unknown key 'preferred_batch_size' in the model configuration | "
        "'preferred_batch_size' belongs in 'dynamic_batching'",
    ),
    (
        '{"dynamic_batching": {"backend": "x"}}',
        "dynamic_batching.backend | unknown key 'backend' in 'dynamic_batching' at dynamic_batching.backend | "
        "'backend' belongs in the model itself, outside of every bracket",
    ),
    (
        '{"input": [{}, {"shape": [1]}]}',
        "input[1].shape | unknown key 'shape' in 'input' at input[1].shape | did you mean 'dims'?",
    ),
    (
        '{"parameters": {"a": {"value": "x"}}}',
        "parameters.a.value | unknown key 'value' in 'a' at parameters.a.value | possible here: string_value",
    ),
    ('{"max_batch_size": "x"}', "max_batch_size | 'max_batch_size' takes an int32, found string 'x'"),
    ('{"max_batch_size": 1.5}', "max_batch_size | 'max_batch_size' takes an int32, found 1.5"),
    ('{"max_batch_size": true}', "max_batch_size | 'max_batch_size' takes an int32, found true"),
    ('{"max_batch_size": []}', "max_batch_size | 'max_batch_size' takes an int32, found a list"),
    ('{"max_batch_size": {}}', "max_batch_size | 'max_batch_size' takes an int32, found an object"),
    (
        '{"max_batch_size": 2147483648}',
        "max_batch_size | 'max_batch_size' is 2147483648, outside int32 | give a number from -2147483648 to "
        "2147483647",
    ),
    (
        '{"max_batch_size": "-2147483649"}',
        "max_batch_size | 'max_batch_size' is -2147483649, outside int32 | give a number from -2147483648 to "
        "2147483647",
    ),
    ('{"max_batch_size": 1e300}', "max_batch_size | 'max_batch_size' takes an int32, found 1e+300"),
    ('{"max_batch_size": "٣"}', "max_batch_size | 'max_batch_size' takes an int32, found string '٣'"),
    ('{"max_batch_size": "--3"}', "max_batch_size | 'max_batch_size' takes an int32, found string '--3'"),
    ('{"max_batch_size": ""}', "max_batch_size | 'max_batch_size' takes an int32, found string ''"),
    ('{"max_batch_size": NaN}', "max_batch_size | 'max_batch_size' takes an int32, found nan"),
    (
        '{"version_policy": {"latest": {"num_versions": -1}}}',
        "version_policy.latest.num_versions | 'num_versions' is -1, outside uint32 at "
        "version_policy.latest.num_versions | give a number from 0 to 4294967295",
    ),
    (
        '{"instance_group": [{"gpus": [0, "one"]}]}',
        "instance_group[0].gpus[1] | 'gpus' takes an int32, found string 'one' at instance_group[0].gpus[1]",
    ),
    ('{"name": 5}', "name | 'name' takes a string in quotes, found 5"),
    ('{"name": false}', "name | 'name' takes a string in quotes, found false"),
    ('{"name": ["x"]}', "name | 'name' takes a string in quotes, found a list"),
    ('{"name": "\\ud800"}', "name | 'name' holds half of a surrogate pair | write the whole character"),
    ('{"input": {}}', "input | 'input' takes a list, found an object | write [ ... ]"),
    ('{"input": "x"}', "input | 'input' takes a list, found string 'x' | write [ ... ]"),
    ('{"input": [3]}', "input[0] | 'input' takes an object, found 3 at input[0]"),
    ('{"input": [null]}', "input[0] | 'input' takes an object, found null at input[0]"),
    ('{"input": [{"dims": [null]}]}', "input[0].dims[0] | 'dims' takes an int64, found null at input[0].dims[0]"),
    ('{"input": [{"dims": 4}]}', "input[0].dims | 'dims' takes a list, found 4 at input[0].dims | write [ ... ]"),
    (
        '{"input": [{"optional": 1}]}',
        "input[0].optional | 'optional' takes true or false, found 1 at input[0].optional",
    ),
    (
        '{"input": [{"optional": "true"}]}',
        "input[0].optional | 'optional' takes true or false, found string 'true' at input[0].optional",
    ),
    (
        '{"input": [{"data_type": "FP32"}]}',
        "input[0].data_type | unknown value 'FP32' for 'data_type' at input[0].data_type | did you mean "
        "'TYPE_FP32'?",
    ),
    (
        '{"input": [{"data_type": 99}]}',
        "input[0].data_type | 'data_type' has no value of number 99 at input[0].data_type | write one of "
        "TYPE_INVALID, TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, TYPE_UINT32, TYPE_UINT64, TYPE_INT8, TYPE_INT16, "
        "TYPE_INT32, TYPE_INT64, TYPE_FP16, TYPE_FP32, TYPE_FP64, TYPE_STRING, TYPE_BF16",
    ),
    (
        '{"input": [{"data_type": 1.5}]}',
        "input[0].data_type | 'data_type' takes one of TYPE_INVALID, TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, "
        "TYPE_UINT32, TYPE_UINT64, TYPE_INT8, TYPE_INT16, TYPE_INT32, TYPE_INT64, TYPE_FP16, TYPE_FP32, "
        "TYPE_FP64, TYPE_STRING, TYPE_BF16, found 1.5 at input[0].data_type",
    ),
    (
        '{"input": [{"data_type": -1}]}',
        "input[0].data_type | 'data_type' has no value of number -1 at input[0].data_type | write one of "
        "TYPE_INVALID, TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, TYPE_UINT32, TYPE_UINT64, TYPE_INT8, TYPE_INT16, "
        "TYPE_INT32, TYPE_INT64, TYPE_FP16, TYPE_FP32, TYPE_FP64, TYPE_STRING, TYPE_BF16",
    ),
    (
        '{"input": [{"data_type": 123456789012}]}',
        "input[0].data_type | 'data_type' has no value of number 123456789012 at input[0].data_type | write one "
        "of TYPE_INVALID, TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, TYPE_UINT32, TYPE_UINT64, TYPE_INT8, TYPE_INT16, "
        "TYPE_INT32, TYPE_INT64, TYPE_FP16, TYPE_FP32, TYPE_FP64, TYPE_STRING, TYPE_BF16",
    ),
    (
        '{"input": [{"data_type": null}, {"data_type": true}]}',
        "input[1].data_type | 'data_type' takes one of TYPE_INVALID, TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, "
        "TYPE_UINT32, TYPE_UINT64, TYPE_INT8, TYPE_INT16, TYPE_INT32, TYPE_INT64, TYPE_FP16, TYPE_FP32, "
        "TYPE_FP64, TYPE_STRING, TYPE_BF16, found true at input[1].data_type",
    ),
    (
        '{"sequence_batching": {"direct": {"minimum_slot_utilization": "half"}}}',
        "sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, found "
        "string 'half' at sequence_batching.direct.minimum_slot_utilization",
    ),
    (
        '{"sequence_batching": {"direct": {"minimum_slot_utilization": false}}}',
        "sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, found "
        "false at sequence_batching.direct.minimum_slot_utilization",
    ),
    ('{"parameters": []}', "parameters | 'parameters' takes an object, found a list"),
    (
        '{"parameters": {"a": "x"}}',
        'parameters.a | \'a\' takes an object, found string \'x\' at parameters.a | write {"string_value": "x"}',
    ),
    ('{"parameters": {"a": null}}', "parameters.a | 'a' takes an object, found null at parameters.a"),
    (
        '{"dynamic_batching": {"priority_queue_policy": {"high": {}}}}',
        "dynamic_batching.priority_queue_policy.high | 'key' takes a uint64, found string 'high' at "
        "dynamic_batching.priority_queue_policy.high",
    ),
    (
        '{"dynamic_batching": {"priority_queue_policy": {"1": {"max_queue_size": -1}}}}',
        "dynamic_batching.priority_queue_policy[1].max_queue_size | 'max_queue_size' is -1, outside uint32 at "
        "dynamic_batching.priority_queue_policy[1].max_queue_size | give a number from 0 to 4294967295",
    ),
    ('{"dynamic_batching": true}', "dynamic_batching | 'dynamic_batching' takes an object, found true"),
    ('{"name": "a", "name": "b"}', "name | 'name' is given twice | keep one of them"),
    (
        '{"parameters": {"a": {}, "a": {}}}',
        "parameters.a | 'parameters' has the key 'a' twice at parameters.a | keep one of them",
    ),
    (
        '{"input": [{"name": "a", "name": "b"}]}',
        "input[0].name | 'name' is given twice at input[0].name | keep one of them",
    ),
    (
        '{"max_batch_size": 4, "maxBatchSize": 8}',
        "max_batch_size | 'maxBatchSize' and 'max_batch_size' are one key, given twice | keep one of them",
    ),
    (
        '{"instanceGroup": [], "instance_group": []}',
        "instance_group | 'instance_group' and 'instanceGroup' are one key, given twice | keep one of them",
    ),
    (
        '{"dynamic_batching": {}, "sequence_batching": {}}',
        "sequence_batching | 'sequence_batching' cannot stand beside 'dynamic_batching' | keep one of them",
    ),
    (
        '{"version_policy": {"all": {}, "latest": {}}}',
        "version_policy.latest | 'latest' cannot stand beside 'all' at version_policy.latest | keep one of them",
    ),
    ("[]", "the model configuration takes an object, found a list"),
    ("null", "the model configuration takes an object, found null"),
    ('"x"', "the model configuration takes an object, found string 'x'"),
    ("3", "the model configuration takes an object, found 3"),
    (
        '{"nam": 1, "max_batch_size": "x", "input": [{"dims": ["y", 2]}]}',
        "nam | unknown key 'nam' in the model configuration | did you mean 'name'?",
        "max_batch_size | 'max_batch_size' takes an int32, found string 'x'",
        "input[0].dims[0] | 'dims' takes an int64, found string 'y' at input[0].dims[0]",
    ),
    ("", "1:1 | not JSON: Expecting value"),
    ('{"name":\n }', "2:2 | not JSON: Expecting value"),
    ('{"name": "m"} x', "1:15 | not JSON: Extra data"),
    ('{"name": m}', "1:10 | not JSON: Expecting value"),
    ("{'name': 'm", "1:2 | not JSON: Expecting property name enclosed in double quotes"),
    ('{"max_batch_size": 0x1}', "1:21 | not JSON: Expecting ',' delimiter"),
    ('{,"name": "m"}', "1:2 | not JSON: Expecting property name enclosed in double quotes"),
    ('{"name": "m" /* x */}', "1:14 | not JSON: Expecting ',' delimiter"),
    ('{"parameters": {1a: {}}}', "1:17 | not JSON: Expecting property name enclosed in double quotes"),
    ("[[[[[", "1:6 | not JSON: Expecting value"),
    ('{"name": "a\\q"}', "1:12 | not JSON: Invalid \\escape"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_an_error_has_its_key_and_says_where_it_is(row):
    text, *expected = row
    report = Report("j")
    parse_json(text, report)
    assert [shown(error) for error in report.errors] == expected


def test_json_that_is_nested_without_an_end_is_refused():
    assert read("[" * 200000)[1] == ["j: the JSON is nested too deep"]


def test_json_of_absurd_size_is_not_read():
    report = Report("j")
    message = parse_json(" " * limits.CONFIG_BYTES_MAX + "{", report)
    assert report.malformed and not message.ListFields()
    assert [error.message for error in report.errors] == ["the JSON has 16777217 characters, more than 16777216"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4), ("-4", -4), ("4.0", 4), ("4e3", 4000), ('"4"', 4), ('"-4"', -4), ("-0.0", 0), ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)), ('"2147483647"', 2**31 - 1), ("null", 0),
    ],
)  # fmt: skip
def test_an_integer_is_a_number_or_a_text(text, value):
    message, errors = read(f'{{"max_batch_size": {text}}}')
    assert not errors and message.max_batch_size == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("0.25", 0.25), ('"0.25"', 0.25), ("-1e-3", -0.001), ('"inf"', float("inf")), ("0", 0.0)],
)
def test_a_number_with_a_fraction_is_a_number_or_a_text(text, value):
    message, errors = read(
        f'{{"model_metrics": {{"metric_control": [{{"histogram_options": {{"buckets": [{text}]}}}}]}}}}'
    )
    assert not errors and list(message.model_metrics.metric_control[0].histogram_options.buckets) == [value]


def test_what_is_null_is_not_there():
    message, errors = read('{"name": null, "input": null, "parameters": null, "dynamic_batching": null}')
    assert not errors and not message.ListFields()
    message, errors = read('{"dynamic_batching": null, "sequence_batching": {}}')
    assert not errors and message.WhichOneof("scheduling_choice") == "sequence_batching"


def test_an_empty_object_is_there():
    message, errors = read('{"dynamic_batching": {}, "parameters": {"a": {}}}')
    assert not errors and message.HasField("dynamic_batching") and message.parameters["a"].string_value == ""


def test_an_entry_whose_key_cannot_be_read_is_left_out():
    text = (
        '{"dynamic_batching": {"priority_queue_policy": {"high": {"max_queue_size": 3}, "2": {"max_queue_size": 4}}}}'
    )
    message, errors = read(text)
    policies = message.dynamic_batching.priority_queue_policy
    assert len(errors) == 1 and [(level, policies[level].max_queue_size) for level in policies] == [(2, 4)]


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
