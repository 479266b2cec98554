"""Classification: the best classes as Triton writes them, for any values."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.wire.helpers import answer, request_for, strings, tensor
from tisfast.errors import BadRequest, Internal
from tisfast.limits import CLASSES_MAX
from tisfast.types import BY_WIRE
from tisfast.wire import respond
from tisfast.wire.signature import ModelSignature

TYPES = {name: BY_WIRE[name].numpy for name in BY_WIRE if name not in ("BOOL", "FP16", "BF16", "BYTES")}


def ask(dtype="FP32", *, labels=(), max_batch=0, rank=1, batch=1, **parameters):
    outputs = [("O", BY_WIRE[dtype].code, (-1,) * rank, labels)]
    signature = ModelSignature("m", "1", max_batch, False, [("I", 11, (-1,), False, False)], outputs)
    shape = [batch, 1] if max_batch else [1]
    return request_for(
        signature, tensor(shape=shape, data=[1] * batch), outputs=[{"name": "O", "parameters": parameters}]
    )


def render(request, values):
    dtype = next(BY_WIRE[name].code for name in TYPES if np.dtype(TYPES[name]) == values.dtype)
    return respond.render(answer(request, [(0, dtype, list(values.shape), values.tobytes())]))


def classes(request, values):
    text, tail = render(request, values)
    (output,) = json.loads(text)["outputs"]
    assert (tail, output["datatype"]) == (b"", "BYTES")
    return output["shape"], output["data"]


def test_best_first_with_six_decimals_and_the_index():
    values = np.array([0.25, -1, 3e10, 7], np.float32)
    assert classes(ask(classification=2), values) == ([2], ["30000001024.000000:2", "7.000000:3"])


def test_more_classes_than_elements_are_all_of_them():
    assert classes(ask("INT8", classification=9), np.array([-3, 5], np.int8)) == ([2], ["5:1", "-3:0"])


def test_labels_stand_behind_the_index_where_there_is_one():
    request = ask(labels=(b"cat", b"", "dög".encode()), classification=4)
    assert classes(request, np.array([1, 2, 3, 4], np.float32))[1] == [
        "4.000000:3",
        "3.000000:2:dög",
        "2.000000:1",
        "1.000000:0:cat",
    ]


def test_each_entry_of_a_batch_for_itself():
    values = np.array([[[1, 2], [3, 4]], [[8, 7], [6, 5]]], np.int32)
    assert classes(ask("INT32", max_batch=4, rank=2, batch=2, classification=2), values) == (
        [2, 2],
        ["4:3", "3:2", "8:0", "7:1"],
    )


def test_without_a_batch_dimension_the_whole_tensor_is_one_entry():
    assert classes(ask("UINT8", rank=2, classification=1), np.array([[1, 9], [3, 4]], np.uint8)) == ([1], ["9:1"])


def test_binary_form():
    text, tail = render(ask(classification=2, binary_data=True), np.array([1, 2], np.float32))
    assert tail == strings(b"2.000000:1", b"1.000000:0")
    assert text.endswith(
        b'"outputs":[{"name":"O","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":28}}]}'
    )


def test_no_elements_are_no_classes():
    assert classes(ask(classification=2), np.array([], np.float32)) == ([0], [])
    assert render(ask(classification=2, binary_data=True), np.array([], np.float32))[1] == b""


def test_zero_classes_ask_for_the_tensor():
    text, _ = render(ask(classification=0), np.array([1, 2], np.float32))
    assert json.loads(text)["outputs"][0] == {"name": "O", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}


def test_infinities_and_nan_have_their_place():
    values = np.array([np.nan, np.inf, 0, -np.inf], np.float64)
    assert classes(ask("FP64", classification=4), values)[1] == ["inf:1", "0.000000:2", "-inf:3", "nan:0"]


def test_the_longest_double_is_written_whole():
    value = np.array([-np.finfo(np.float64).max])
    assert classes(ask("FP64", classification=1), value)[1] == [f"{value[0]:f}:0"]


@pytest.mark.parametrize("dtype", ["BOOL", "FP16", "BF16", "BYTES"])
def test_types_that_have_no_classes(dtype):
    data = strings(b"a") if dtype == "BYTES" else bytes(BY_WIRE[dtype].size)
    made = answer(ask(dtype, classification=1), [(0, BY_WIRE[dtype].code, [1], data)])
    text = f"class result not available for output due to unsupported type '{dtype}'"
    with pytest.raises(BadRequest, match=text):
        respond.render(made)


def test_too_many_elements():
    made = answer(
        ask("UINT8", classification=1), [(0, BY_WIRE["UINT8"].code, [CLASSES_MAX + 1], bytes(CLASSES_MAX + 1))]
    )
    with pytest.raises(BadRequest, match="classification output tensor too large"):
        respond.render(made)
    made = answer(ask("UINT8", classification=1), [(0, BY_WIRE["UINT8"].code, [CLASSES_MAX], bytes(CLASSES_MAX))])
    assert b'"data":["0:0"]' in respond.render(made)[0]


@pytest.mark.parametrize("count", [-1, 1.5, "2", True, None])
def test_a_count_that_is_none(count):
    text = "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer"
    with pytest.raises(Internal, match=text):
        ask(classification=count)


@pytest.mark.parametrize("dtype", TYPES)
@given(data=st.data())
def test_any_values_are_sorted_as_by_a_stable_sort(dtype, data):
    values = data.draw(
        arrays(TYPES[dtype], st.integers(1, 40), elements={"allow_nan": False} if "FP" in dtype else None)
    )
    count = data.draw(st.integers(1, 50))
    found = classes(ask(dtype, classification=count), values)[1]
    order = sorted(range(len(values)), key=lambda i: (-values[i].item(), i))[:count]
    form = "f" if "FP" in dtype else "d"
    assert found == [f"{values[i].item():{form}}:{i}" for i in order]


def test_data_at_an_odd_address():
    request = ask("INT64", classification=2)
    place = answer(request, [(0, BY_WIRE["INT64"].code, [2], struct.pack("<2q", 5, 6))])
    assert b'["6:1","5:0"]' in respond.render(place)[0]


@pytest.mark.parametrize("name", sorted(TYPES))
def test_the_values_have_the_type_that_the_model_returned(name):
    """And nothing is read behind them, where the configured type is wider."""
    values = np.array([3, 1, 2], TYPES[name])
    shape, found = classes(ask("FP64", classification=3), values)
    assert (shape, [text.split(":")[1] for text in found]) == ([3], ["0", "2", "1"])
    assert [float(text.split(":")[0]) for text in found] == [3, 2, 1]


def test_a_type_without_an_order_is_named_as_the_model_returned_it():
    with pytest.raises(BadRequest, match="unsupported type 'BYTES'"):
        respond.render(answer(ask(classification=1), [(0, 13, [1], strings(b"a"))]))
