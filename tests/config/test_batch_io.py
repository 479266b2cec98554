"""batch_input and batch_output: tensors made of a batch, outputs cut by it."""

from __future__ import annotations

import pytest

from tests.config.loading import load, told
from tisfast.config.batch_io import asked

BATCHIO = [
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_input { kind: BATCH_ELEMENT_COUNT target_name: "T" source_input: "A" }',
        "3:13 batch_input[0].data_type | unexpected batch input data type 'TYPE_INVALID' | for example data_type: "
        "TYPE_INT32",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_input { kind: BATCH_ELEMENT_COUNT data_type: TYPE_INT64 target_name: "T" source_input: "A" }',
        "3:41 batch_input[0].data_type | batch input data type must be TYPE_INT32 or TYPE_FP32 for m | it is "
        "TYPE_INT64",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT data_type: TYPE_INT32 target_name: "A" '
        'source_input: "A" }',
        "3:75 batch_input[0].target_name | target input name 'A' can only be specified once for m | give it a "
        "name of its own",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_input { kind: BATCH_ELEMENT_COUNT data_type: TYPE_INT32 target_name: [ "T", "T" ] source_input: '
        '"A" }',
        "3:63 batch_input[0].target_name | target input name 'T' can only be specified once for m | give it a "
        "name of its own",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_input { kind: BATCH_MAX_ELEMENT_COUNT_AS_SHAPE data_type: TYPE_FP32 target_name: "T" '
        'source_input: [ "A", "A" ] }',
        "3:92 batch_input[0].source_input | batch input kind 'BATCH_MAX_ELEMENT_COUNT_AS_SHAPE' expects 1 source "
        "input, got 2 for m",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_input { kind: BATCH_ITEM_SHAPE data_type: TYPE_FP32 target_name: "T" }',
        "3:13 batch_input[0].source_input | batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 0 for "
        "m",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_input { kind: BATCH_ITEM_SHAPE_FLATTEN data_type: TYPE_FP32 target_name: "T" source_input: "B" }',
        "3:84 batch_input[0].source_input | unknown source input name 'B' for m | its inputs are A",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_output { target_name: "A" source_input: "A" }',
        "3:16 batch_output[0].target_name | unknown target output name 'A' for m | its outputs are B",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_output { target_name: [ "B", "B" ] source_input: "A" }',
        "3:16 batch_output[0].target_name | target output name 'B' can only be specified once for m | remove it "
        "from one of the two",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_output { target_name: "B" source_input: "Z" }',
        "3:33 batch_output[0].source_input | unknown source input name 'Z' for m | its inputs are A",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 }\noutput { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nbatch_output { target_name: "B" }',
        "3:14 batch_output[0].source_input | batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source "
        "input, got 0 for m",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", BATCHIO)
def test_what_cannot_be_made_of_a_batch_is_told_with_its_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


IO = 'input { name: "A" data_type: TYPE_FP32 dims: 1 } output { name: "B" data_type: TYPE_FP32 dims: 1 } '


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", ""),
        ('batch_input { data_type: TYPE_INT32 target_name: "T" source_input: "A" }', "batch_input"),
        ('batch_input { data_type: TYPE_FP32 target_name: [ "T", "U" ] source_input: "A" }', "batch_input"),
        ('batch_output { target_name: "B" source_input: "A" }', "batch_output"),
        (
            'batch_output { target_name: "B" source_input: "A" } '
            'batch_input { data_type: TYPE_INT32 target_name: "T" source_input: "A" }',
            "batch_input",
        ),
    ],
)
def test_the_first_key_that_only_a_whole_batch_can_serve(text, key):
    assert asked(load(IO + text).message) == key


def test_one_target_for_two_batch_inputs_is_refused():
    one = 'batch_input { data_type: TYPE_INT32 target_name: "T" source_input: "A" } '
    assert told(f"{IO}\n{one}\n{one}") == [
        "3:37 batch_input[1].target_name | target input name 'T' can only be specified once for m "
        "| give it a name of its own"
    ]
