"""Requests whose JSON came before with other numbers: read as the parser reads them, whatever the numbers are."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire.helpers import arena, model, read_record
from tisfast.errors import TisError
from tisfast.wire import infer

DTYPES = ["FP32", "FP64", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL", "FP16"]
ODD = [
    "-0", "-0.0", "0.1", "1E-3", "1e+5", "1e22", "1e23", "1e400", "1e-400", "3e0", "01", "1.", "--1", "-", ".5", "+1",
    "1e", "9007199254740993", "123456789012345678", "12345678901234567890", "18446744073709551615", "127", "128",
    "-129", "18446744073709551616", "-9223372036854775808", "256", "65536",
    "NaN", "Infinity", "true", "null", '"a"', "[1]", "",
    " 7 ", "0.30000000000000004", "-123456789012345678901234567890.5e-3",
]  # fmt: skip
TOKENS = (
    st.integers(-300, 300).map(str)
    | st.integers(-(2**70), 2**70).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)
    | st.decimals(-1000, 1000, places=3).map(str)
    | st.sampled_from(ODD)
)


def request(dtype, shape, data, more=""):
    tensor = json.dumps({"name": "I", "datatype": dtype, "shape": shape})[:-1]
    return ('{"id":"7",' + more + '"inputs":[' + tensor + ',"data":[' + data + "]}]}").encode()


def outcome(signature, text):
    try:
        got = infer.parse(signature, arena(), text)
    except TisError as error:
        return type(error), str(error)
    return got.id, got.batch, read_record(got)


@given(
    st.sampled_from(DTYPES),
    st.lists(TOKENS, min_size=1, max_size=6),
    st.integers(-1, 1),
    st.sampled_from([",", " ,", ",\n"]),
)
@example("FP32", ["1.5", "2"], 0, ",")
def test_numbers_mean_what_the_parser_says(dtype, tokens, surplus, comma):
    shape = [max(1, len(tokens) + surplus)]
    known = model(dtype=dtype)
    outcome(known, request(dtype, shape, ",".join(["1"] * shape[0])))
    text = request(dtype, shape, comma.join(tokens))
    assert outcome(known, text) == outcome(model(dtype=dtype), text)


@given(st.text(max_size=30), st.text(max_size=30))
@example('"data":[1]', 'x","data":[2]')
@example("data", 'a\\"data')
def test_other_texts_may_hold_anything(name, value):
    more = json.dumps({"parameters": {name: value}}, ensure_ascii=False)[1:-1] + ","
    known = model()
    outcome(known, request("FP32", [2], "1,2", more))
    text = request("FP32", [2], "3,4.5", more)
    assert outcome(known, text) == outcome(model(), text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"inputs":[{"name":"I","datatype":"FP32","shape":[1],"data":[1]}],"inputs":[{"name":"I","datatype":"FP32","shape":[1],"data":[2]}]}',
        b'{"inputs":[{"name":"I","datatype":"FP32","shape":[1],"data":[1],"data":[2]}]}',
        b'{"inputs":[{"name":"I","datatype":"FP32","shape":[2],"data":[[1],[2]]}]}',
        b'{"inputs":[{"name":"I","datatype":"FP32","shape":[1],"data":[1],"d\\u0061ta":[2]}]}',
        b'{"data":[9],"inputs":[{"name":"I","datatype":"FP32","shape":[1],"data":[1]}]}',
        b'{"inputs":[{"name":"I","datatype":"FP32","shape":[0],"data":[]}]}',
        b'{"inputs":[{"name":"I","datatype":"FP32","shape":[1],"data":[1',
    ],
)
def test_what_is_not_one_array_to_an_input_is_parsed_each_time(text):
    known = model()
    first = outcome(known, text)
    assert outcome(known, text) == first == outcome(model(), text)
    changed = text.replace(b"[1]", b"[5]")
    assert outcome(known, changed) == outcome(model(), changed)


def test_ids_are_each_requests_own():
    known = model()
    for number in ("7", "8", "9"):
        text = request("FP32", [1], "1").replace(b'"7"', f'"{number}"'.encode())
        assert outcome(known, text)[0] == number
