"""Warm-up samples: what each field becomes, and every refusal with its place and hint."""

from __future__ import annotations

import pytest

from tests.config.loading import load, told
from tisfast import limits
from tisfast.config.warm_up_samples import WarmUpInput, WarmUpSample

REFUSED = [
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ]  } } }',
        "4:8 model_warmup[0].inputs.A | warmup setting expects input 'A' to have input_data_type set | add "
        "zero_data: true, random_data: true or input_data_file",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ -1, 2 ] zero_data: true } } }',
        "4:48 model_warmup[0].inputs.A.dims | warmup setting expects all variable-size dimensions are specified "
        "for input 'A' | give each dimension a size: a warm-up is a request",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ] input_data_file: "../x" } } }',
        "4:63 model_warmup[0].inputs.A.input_data_file | warmup setting for input 'A' names the file '../x', "
        "which is not in the folder 'warmup' for m | give a path below warmup/, without '..'",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ] input_data_file: "/etc/x" } } }',
        "4:63 model_warmup[0].inputs.A.input_data_file | warmup setting for input 'A' names the file '/etc/x', "
        "which is not in the folder 'warmup' for m | give a path below warmup/, without '..'",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ] input_data_file: "" } } }',
        "4:63 model_warmup[0].inputs.A.input_data_file | warmup setting for input 'A' names the file '', which is "
        "not in the folder 'warmup' for m | give a path below warmup/, without '..'",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ] input_data_file: "a/../b" } } }',
        "4:63 model_warmup[0].inputs.A.input_data_file | warmup setting for input 'A' names the file 'a/../b', "
        "which is not in the folder 'warmup' for m | give a path below warmup/, without '..'",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 257\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ] zero_data: true } } }',
        "3:26 model_warmup[0].batch_size | warmup sample 'w' asks for 257 requests in one execution, more than "
        "256, for m | use 'count' for more executions",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ] zero_data: true } }\ninputs { key: "Z" value { data_type: TYPE_FP32 dims: [ 3, '
        '2 ] zero_data: true } } }',
        "5:8 model_warmup[0].inputs.Z | unexpected inference input 'Z' for model 'm' (its inputs are A, O)",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\n }',
        "3:14 model_warmup[0] | expected number of inputs between 1 and 2 but got 0 inputs for model 'm'. Got "
        "input(s) [], but missing required input(s) ['A']. Please provide all required input(s). | add them to "
        "the warm-up sample 'w'",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "O" value { data_type: '
        'TYPE_INT32 dims: 1 zero_data: true } } }',
        "3:14 model_warmup[0] | expected number of inputs between 1 and 2 but got 1 inputs for model 'm'. Got "
        "input(s) ['O'], but missing required input(s) ['A']. Please provide all required input(s). | add them to "
        "the warm-up sample 'w'",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_INT64 dims: [ 3, 2 ] zero_data: true } } }',
        "4:27 model_warmup[0].inputs.A.data_type | inference input 'A' data-type is 'INT64', but model 'm' "
        "expects 'FP32' | write data_type: TYPE_FP32",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_INVALID dims: [ 3, 2 ] zero_data: true } } }',
        "4:27 model_warmup[0].inputs.A.data_type | inference input 'A' data-type is '<invalid>', but model 'm' "
        "expects 'FP32' | write data_type: TYPE_FP32",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 4 ] zero_data: true } } }',
        "4:48 model_warmup[0].inputs.A.dims | unexpected shape for input 'A' for model 'm'. Expected [-1,2], got "
        "[3,4]",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3 ] zero_data: true } } }',
        "4:48 model_warmup[0].inputs.A.dims | unexpected shape for input 'A' for model 'm'. Expected [-1,2], got "
        "[3]",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ ] zero_data: true } } }',
        "4:48 model_warmup[0].inputs.A.dims | unexpected shape for input 'A' for model 'm'. Expected [-1,2], got "
        "[]",
    ),
    (
        'max_batch_size: 4\ninput { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" '
        'data_type: TYPE_INT32 dims: 1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: '
        '"A" value { data_type: TYPE_FP32 dims: [ 1, 3, 2 ] zero_data: true } } }',
        "5:48 model_warmup[0].inputs.A.dims | unexpected shape for input 'A' for model 'm'. Expected [-1,-1,2], "
        "got [1,1,3,2] | give dims without the batch dimension",
    ),
    (
        'sequence_batching { control_input { name: "S" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ '
        '0, 1 ] } } }\ninput { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: '
        'TYPE_INT32 dims: 1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { '
        'data_type: TYPE_FP32 dims: [ 3, 2 ] zero_data: true } }\ninputs { key: "S" value { data_type: TYPE_INT32 '
        'dims: 1 random_data: true } } }',
        "6:8 model_warmup[0].inputs.S | warmup setting gives the control input 'S' other data than zero_data, "
        "which is not served, for m | write zero_data: true, or leave it out",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ] zero_data: true } }\ninputs { key: "O" value { data_type: TYPE_FP32 dims: [ 2 ] '
        'zero_data: true } } }',
        "5:27 model_warmup[0].inputs.O.data_type | inference input 'O' data-type is 'FP32', but model 'm' expects "
        "'INT32' | write data_type: TYPE_INT32",
        "5:48 model_warmup[0].inputs.O.dims | unexpected shape for input 'O' for model 'm'. Expected [1], got [2]",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }\ninput { name: "O" data_type: TYPE_INT32 dims: '
        '1 optional: true }\nmodel_warmup { name: "w" batch_size: 1\ninputs { key: "A" value { data_type: '
        'TYPE_FP32 dims: [ 3, 2 ] zero_data: true random_data: true } } }',
        "4:79 model_warmup[0].inputs[0].value.random_data | 'random_data' cannot stand beside 'zero_data' (line "
        "4) | keep one of them: they are choices of 'input_data_type'",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_a_sample_that_cannot_be_is_told_with_its_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


INPUT = 'input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] } '


def samples(text):
    return load(f"{INPUT}{text}").warm_up


def given(text, name="A"):
    return f'inputs {{ key: "{name}" value {{ data_type: TYPE_FP32 dims: [ 3, 2 ] {text} }} }} '


@pytest.mark.parametrize(
    ("text", "source", "file"),
    [
        ("zero_data: true", "zero_data", ""),
        ("zero_data: false", "zero_data", ""),
        ("random_data: true", "random_data", ""),
        ('input_data_file: "raw"', "input_data_file", "raw"),
        ('input_data_file: "folder/..raw"', "input_data_file", "folder/..raw"),
    ],
)
def test_where_the_data_of_a_sample_comes_from(text, source, file):
    (sample,) = samples(f'model_warmup {{ name: "w" batch_size: 1 {given(text)} }}')
    assert sample == WarmUpSample("w", 1, 1, (WarmUpInput("A", 11, (3, 2), source, file),))


@pytest.mark.parametrize(
    ("text", "requests", "count"),
    [
        ("batch_size: 1", 1, 1),
        ("batch_size: 1 count: 0", 1, 1),
        ("batch_size: 3 count: 5", 3, 5),
        (f"batch_size: {limits.SUBMIT_SLOTS} count: 4294967295", limits.SUBMIT_SLOTS, 2**32 - 1),
    ],
)
def test_how_often_a_sample_is_executed(text, requests, count):
    (sample,) = samples(f'model_warmup {{ name: "w" {text} {given("zero_data: true")} }}')
    assert (sample.requests, sample.count) == (requests, count)


def test_a_sample_of_no_request_is_left_out_and_the_others_keep_their_order():
    one = 'model_warmup {{ name: "{}" batch_size: {} {} }} '
    text = "".join(one.format(name, size, given("zero_data: true")) for name, size in (("b", 1), ("no", 0), ("a", 2)))
    assert [(sample.name, sample.requests) for sample in samples(text)] == [("b", 1), ("a", 2)]


def test_inputs_of_a_sample_are_in_the_order_of_their_names():
    more = 'input { name: "0" data_type: TYPE_FP32 dims: [ 3, 2 ] } '
    zero = given("zero_data: true") + given("zero_data: true", "0")
    (sample,) = samples(f"{more} model_warmup {{ batch_size: 1 {zero} }}")
    assert [each.name for each in sample.inputs] == ["0", "A"]


def test_a_control_input_is_made_by_the_server():
    control = 'sequence_batching { control_input { name: "S" control { int32_false_true: [ 0, 1 ] } } } '
    zero = given("zero_data: true") + given("zero_data: true", "S")
    (sample,) = samples(f"{control} model_warmup {{ batch_size: 1 {zero} }}")
    assert [each.name for each in sample.inputs] == ["A"]


def test_all_inputs_are_asked_for_in_their_number_where_none_is_optional():
    assert told(f'{INPUT}\nmodel_warmup {{ name: "w" batch_size: 1 }}') == [
        "2:14 model_warmup[0] | expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing "
        "required input(s) ['A']. Please provide all required input(s). | add them to the warm-up sample 'w'"
    ]


def test_where_the_inputs_cannot_be_read_samples_are_not_judged_by_them():
    sample = f"model_warmup {{ batch_size: 1 {given('zero_data: true')} }}"
    assert told(f'input {{ name: "A" data_type: FLOAT dims: 4 }}\n{sample}') == [
        "1:30 input[0].data_type | unknown value 'FLOAT' for 'data_type' | did you mean 'TYPE_FP32'?"
    ]


def test_a_sample_that_cannot_be_read_lacks_no_input():
    assert told(f'{INPUT}\nmodel_warmup {{ batch_size: 1 inputs {{ key: "A" value: "x" }} }}') == [
        "2:55 model_warmup[0].inputs[0].value | 'value' takes { ... }, found string \"x\""
    ]
