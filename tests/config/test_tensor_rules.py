"""Inputs and outputs: what each field becomes, and every refusal with its place and hint."""

from __future__ import annotations

import pytest

from tests.config.loading import load, told
from tisfast import limits
from tisfast.config.model_config import signature_fields
from tisfast.config.tensor_config import TensorConfig
from tisfast.types import BY_CODE

REFUSED = [
    (
        "input { data_type: TYPE_FP32 dims: 4 }",
        '1:7 input[0].name | model input must specify \'name\' for m | add name: "..." to this input',
    ),
    (
        "output { data_type: TYPE_FP32 dims: 4 }",
        '1:8 output[0].name | model output must specify \'name\' for m | add name: "..." to this output',
    ),
    (
        'input { name: "A" dims: 4 }',
        "1:7 input[0].data_type | model input 'A' must specify 'data_type' for m | for example data_type: "
        "TYPE_FP32",
    ),
    (
        'output { name: "B" dims: 4 }',
        "1:8 output[0].data_type | model output 'B' must specify 'data_type' for m | for example data_type: "
        "TYPE_FP32",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 }',
        "1:7 input[0].dims | model input 'A' must specify 'dims' for m | for example dims: [ 4 ], without the "
        "batch dimension; -1 where it varies",
    ),
    (
        'output { name: "B" data_type: TYPE_FP32 dims: [ ] }',
        "1:41 output[0].dims | model output 'B' must specify 'dims' for m | for example dims: [ 4 ], without the "
        "batch dimension; -1 where it varies",
    ),
    (
        "input { }",
        '1:7 input[0].name | model input must specify \'name\' for m | add name: "..." to this input',
        "1:7 input[0].data_type | model input '' must specify 'data_type' for m | for example data_type: TYPE_FP32",
        "1:7 input[0].dims | model input '' must specify 'dims' for m | for example dims: [ 4 ], without the "
        "batch dimension; -1 where it varies",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 0 }',
        "1:46 input[0].dims[0] | model input 'A' dimension must be integer >= 1, or -1 to indicate a "
        "variable-size dimension for m | dims[0] is 0",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ 3, -2 ] }',
        "1:51 input[0].dims[1] | model input 'A' dimension must be integer >= 1, or -1 to indicate a "
        "variable-size dimension for m | dims[1] is -2",
    ),
    (
        'output { name: "B" data_type: TYPE_FP32 dims: [ -1, 0, 1, -9223372036854775808 ] }',
        "1:53 output[0].dims[1] | model output 'B' dimension must be integer >= 1, or -1 to indicate a "
        "variable-size dimension for m | dims[1] is 0",
        "1:59 output[0].dims[3] | model output 'B' dimension must be integer >= 1, or -1 to indicate a "
        "variable-size dimension for m | dims[3] is -9223372036854775808",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 4 }\ninput { name: "A" data_type: TYPE_FP32 dims: 4 }',
        "2:9 input[1].name | model input 'A' is declared more than once for m | rename or remove one of the two "
        "inputs",
    ),
    (
        'output [ { name: "B" data_type: TYPE_FP32 dims: 4 },\n{ name: "C" data_type: TYPE_FP32 dims: 4 },\n{ '
        'name: "B" data_type: TYPE_FP32 dims: 4 } ]',
        "3:3 output[2].name | model output 'B' is declared more than once for m | rename or remove one of the two "
        "outputs",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 4 is_shape_tensor: true }',
        "1:48 input[0].is_shape_tensor | shape tensors are only supported for TensorRT platform for m | remove it",
    ),
    (
        'output { name: "B" data_type: TYPE_FP32 dims: 4 is_shape_tensor: true }',
        "1:49 output[0].is_shape_tensor | shape tensors are only supported for TensorRT platform for m | remove it",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 4 is_non_linear_format_io: true }',
        "1:48 input[0].is_non_linear_format_io | Non-linear IO format is only supported for the TensorRT platform "
        "for m | remove it",
    ),
    (
        'output { name: "B" data_type: TYPE_FP32 dims: 4 is_non_linear_format_io: true }',
        "1:49 output[0].is_non_linear_format_io | Non-linear IO format is only supported for the TensorRT "
        "platform for m | remove it",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 4 format: FORMAT_NHWC }',
        "1:48 input[0].format | model input NHWC/NCHW require 3 dims for m | 'A' has 1; or remove 'format'",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ 1, 3, 8, 8 ] format: FORMAT_NCHW }',
        "1:61 input[0].format | model input NHWC/NCHW require 3 dims for m | 'A' has 4; or remove 'format'",
    ),
]  # fmt: skip

RESHAPES_REFUSED = [
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 4 reshape { } }',
        "1:48 input[0].reshape | model input 'A' cannot have empty reshape for non-batching model as scalar "
        "tensors are not supported for m | use shape: [ 1 ], or set max_batch_size",
    ),
    (
        'output { name: "B" data_type: TYPE_FP32 dims: 4 reshape { } }',
        "1:49 output[0].reshape | model output 'B' cannot have empty reshape for non-batching model as scalar "
        "tensors are not supported for m | use shape: [ 1 ], or set max_batch_size",
    ),
    (
        'max_batch_size: 1 input { name: "A" data_type: TYPE_FP32 dims: 4 reshape { } }',
        "1:66 input[0].reshape.shape | model input 'A' has different size for dims and reshape for m | dims [4] "
        "and shape [] must hold equally many elements, and the dimensions between two -1 too",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 2, 3 ] } }',
        "1:58 input[0].reshape.shape | model input 'A' has different size for dims and reshape for m | dims [4] "
        "and shape [2, 3] must hold equally many elements, and the dimensions between two -1 too",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 0, 4 ] } }',
        "1:67 input[0].reshape.shape[0] | model input 'A' reshape dimensions must be integer >= 1, or -1 to "
        "indicate a variable-size dimension for m | shape[0] is 0",
    ),
    (
        'output { name: "B" data_type: TYPE_FP32 dims: 4 reshape { shape: [ -2, -3 ] } }',
        "1:68 output[0].reshape.shape[0] | model output 'B' reshape dimensions must be integer >= 1, or -1 to "
        "indicate a variable-size dimension for m | shape[0] is -2",
        "1:72 output[0].reshape.shape[1] | model output 'B' reshape dimensions must be integer >= 1, or -1 to "
        "indicate a variable-size dimension for m | shape[1] is -3",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ 2, -1, 6 ] reshape { shape: [ -1, 12 ] } }',
        "1:69 input[0].reshape.shape | model input 'A' has different size for dims and reshape for m | dims [2, "
        "-1, 6] and shape [-1, 12] must hold equally many elements, and the dimensions between two -1 too",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: -1 } }',
        "1:65 input[0].reshape.shape | model input 'A' has different size for dims and reshape for m | dims [2, "
        "3] and shape [-1] must hold equally many elements, and the dimensions between two -1 too",
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: -1 } }',
        "1:67 input[0].reshape.shape | model input 'A' has different size for dims and reshape for m | dims [-1, "
        "-1] and shape [-1] must hold equally many elements, and the dimensions between two -1 too",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_a_tensor_that_is_none_is_told_with_its_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


@pytest.mark.parametrize("row", RESHAPES_REFUSED)
def test_a_reshape_that_cannot_be_is_told_with_its_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


def tensors(text):
    config = load(text)
    return config.inputs + config.outputs


TENSOR = {"dtype": 11, "dims": (4,), "worker_dims": (4,), "optional": False, "ragged": False, "label_filename": ""}


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ("data_type: TYPE_FP32 dims: 4", {}),
        ("data_type: TYPE_FP32 dims: [ 4, -1, 2 ]", {"dims": (4, -1, 2), "worker_dims": (4, -1, 2)}),
        ("data_type: TYPE_FP32 dims: 4 optional: true", {"optional": True}),
        ("data_type: TYPE_FP32 dims: 4 allow_ragged_batch: true", {"ragged": True}),
        ("data_type: TYPE_FP32 dims: 4 reshape { shape: [ 2, 2 ] }", {"worker_dims": (2, 2)}),
        ("data_type: TYPE_FP32 dims: 4 reshape { shape: [ 1, 4, 1 ] }", {"worker_dims": (1, 4, 1)}),
        ("data_type: TYPE_FP32 dims: -1 reshape { shape: [ 1, -1 ] }", {"dims": (-1,), "worker_dims": (1, -1)}),
        (
            "data_type: TYPE_FP32 dims: [ 2, 3, -1, 4 ] reshape { shape: [ 6, -1, 2, 2 ] }",
            {"dims": (2, 3, -1, 4), "worker_dims": (6, -1, 2, 2)},
        ),
        (
            "data_type: TYPE_FP32 dims: [ 8, 8, 3 ] format: FORMAT_NHWC",
            {"dims": (8, 8, 3), "worker_dims": (8, 8, 3)},
        ),
        ("data_type: TYPE_FP32 dims: 9223372036854775807", {"dims": (2**63 - 1,), "worker_dims": (2**63 - 1,)}),
    ],
)
def test_each_field_of_an_input_becomes_a_value(fields, changed):
    (tensor,) = tensors(f'input {{ name: "A" {fields} }}')
    assert tensor == TensorConfig(name="A", **{**TENSOR, **changed})
    assert tensor.reshaped == (tensor.worker_dims != tensor.dims)


def test_an_output_has_labels_and_is_neither_optional_nor_ragged():
    (tensor,) = tensors('output { name: "B" data_type: TYPE_FP32 dims: 4 label_filename: "labels.txt" }')
    assert tensor == TensorConfig(name="B", **{**TENSOR, "label_filename": "labels.txt"})


@pytest.mark.parametrize("dtype", BY_CODE.values(), ids=lambda dtype: dtype.config)
def test_every_data_type_may_be_named(dtype):
    (tensor,) = tensors(f'input {{ name: "A" data_type: {dtype.config} dims: 1 }}')
    assert tensor.dtype == dtype.code


def test_a_scalar_comes_of_an_empty_reshape_where_there_are_batches():
    (tensor,) = tensors('max_batch_size: 1 input { name: "A" data_type: TYPE_FP32 dims: [ 1, 1 ] reshape { } }')
    assert tensor.worker_dims == () and tensor.reshaped


def test_one_name_may_be_an_input_and_an_output():
    text = 'input { name: "A" data_type: TYPE_FP32 dims: 4 } output { name: "A" data_type: TYPE_FP32 dims: 4 }'
    assert signature_fields(load(text)) == ([("A", 11, (4,), False, False)], [("A", 11, (4,))])


def test_the_signature_has_the_dimensions_of_clients():
    text = 'input { name: "A" data_type: TYPE_INT8 dims: 4 reshape { shape: [ 2, 2 ] } optional: true }'
    assert signature_fields(load(f"max_batch_size: 8 {text}")) == ([("A", 6, (4,), True, False)], [])


def dims(count):
    return f'input {{ name: "A" data_type: TYPE_FP32 dims: [ {", ".join(["1"] * count)} ] }}'


@pytest.mark.parametrize(("batches", "most"), [("", limits.TENSOR_RANK_MAX), ("max_batch_size: 2 ", 31)])
def test_the_batch_dimension_counts_among_the_dimensions(batches, most):
    assert len(tensors(batches + dims(most))[0].dims) == most
    (error,) = told(batches + dims(most + 1))
    assert error.endswith(f"model input 'A' has {most + 1} dimensions, more than 32 for m | join some of them")


@pytest.mark.parametrize(("role", "most"), [("input", limits.INPUTS_MAX), ("output", limits.OUTPUTS_MAX)])
def test_a_model_has_no_more_tensors_than_a_request(role, most):
    text = "\n".join(f'{role} {{ name: "{n}" data_type: TYPE_FP32 dims: 1 }}' for n in range(most + 1))
    assert len(tensors(text[: text.rindex("\n")])) == most
    assert told(text) == [
        f"{most + 1}:{len(role) + 2} {role}[{most}] | model 'm' has {most + 1} {role}s, more than {most} "
        f"| join some {role}s into one tensor"
    ]


@pytest.mark.parametrize("missing", ["", "data_type: TYPE_FP32", "dims: 4"])
def test_type_and_dims_may_be_open_where_a_worker_will_be_asked(missing):
    assert load(f'input {{ name: "A" {missing} }}', partial=True).partial
    assert told(f'input {{ name: "A" {missing} }}')


def test_what_is_written_is_checked_even_where_a_worker_will_be_asked():
    assert told("input { dims: 0 reshape { shape: 3 } }", partial=True) == [
        "1:7 input[0].name | model input must specify 'name' for m | add name: \"...\" to this input",
        "1:15 input[0].dims[0] | model input '' dimension must be integer >= 1, or -1 to indicate a variable-size "
        "dimension for m | dims[0] is 0",
        "1:27 input[0].reshape.shape | model input '' has different size for dims and reshape for m | dims [0] and "
        "shape [3] must hold equally many elements, and the dimensions between two -1 too",
    ]
