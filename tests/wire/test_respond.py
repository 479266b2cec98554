"""Response bodies: Triton's JSON, binary tensors behind it."""

from __future__ import annotations

import json
import math
import struct

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.helpers import answer, model, request_for, strings, tensor
from tisfast.errors import BadRequest, Internal
from tisfast.types import BY_WIRE
from tisfast.wire import respond
from tisfast.wire.signature import ModelSignature

FP32 = 11
F2 = struct.pack("<2f", 0.1, 2)
HEAD = b'{"model_name":"m","model_version":"1","outputs":['
OUT = b'{"name":"O","datatype":"FP32","shape":[2]'


def ask(names=("O",), dtype="FP32", dims=(-1,), **fields):
    signature = ModelSignature(
        "m", "1", 0, False, [("I", FP32, (-1,), False, False)], [(o, BY_WIRE[dtype].code, dims) for o in names]
    )
    return request_for(signature, tensor(shape=[1], data=[1]), **fields)


def render(request, *outputs, **options):
    return respond.render(answer(request, list(outputs), **options))


def data_of(dtype, data, n, dims=(-1,)):
    text, tail = render(ask(dtype=dtype, dims=dims), (0, BY_WIRE[dtype].code, [n], data))
    assert tail == b""
    return text


def test_json_widens_floats_to_double():
    text, tail = render(ask(), (0, FP32, [2], F2))
    assert text == HEAD + OUT + b',"data":[0.10000000149011612,2.0]}]}'
    assert tail == b""


def test_binary():
    text, tail = render(ask(parameters={"binary_data_output": True}), (0, FP32, [2], F2))
    assert text == HEAD + OUT + b',"parameters":{"binary_data_size":8}}]}'
    assert tail == F2


def test_the_id_comes_first_and_is_escaped():
    text, _ = render(ask(id='a"\\\x01é/\n'), (0, FP32, [2], F2))
    assert text.startswith(b'{"id":"a\\"\\\\\\u0001\xc3\xa9/\\n","model_name":"m",')


def test_response_parameters():
    text, _ = render(ask(), (0, FP32, [2], F2), parameters=b'{"a":1}')
    assert b'"model_version":"1","parameters":{"a":1},"outputs":[' in text
    assert b"parameters" not in render(ask(), (0, FP32, [2], F2), parameters=b"{}")[0]


def test_each_output_its_own_form_in_the_workers_order():
    request = ask(("X", "Y", "Z"), outputs=[{"name": "Z", "parameters": {"binary_data": True}}, {"name": "Y"}])
    text, tail = render(request, (2, FP32, [2], F2), (0, FP32, [2], F2), (1, FP32, [1], F2[:4]))
    outputs = json.loads(text)["outputs"]
    assert [(o["name"], "data" in o) for o in outputs] == [("Z", False), ("Y", True)]
    assert tail == F2


def test_binary_data_output_counts_only_when_no_outputs_are_listed():
    request = ask(parameters={"binary_data_output": True})
    assert render(request, (0, FP32, [2], F2))[1] == F2
    signature = model()
    listed = request_for(
        signature, tensor(data=[1, 2, 3]), parameters={"binary_data_output": True}, outputs=[{"name": "O"}]
    )
    assert render(listed, (0, FP32, [2], F2))[1] == b""


def test_nan_and_infinities_are_bare_and_readable_by_pythons_json():
    text = data_of("FP64", struct.pack("<4d", math.nan, math.inf, -math.inf, 0.5), 4)
    assert b"[NaN,Infinity,-Infinity,0.5]" in text
    assert str(json.loads(text)["outputs"][0]["data"]) == "[nan, inf, -inf, 0.5]"


@pytest.mark.parametrize(
    ("dtype", "form", "values"),
    [
        ("UINT8", "B", [0, 255]),
        ("UINT16", "H", [0, 2**16 - 1]),
        ("UINT32", "I", [7, 2**32 - 1]),
        ("UINT64", "Q", [0, 2**64 - 1]),
        ("INT8", "b", [-128, 127]),
        ("INT16", "h", [-(2**15), 2**15 - 1]),
        ("INT32", "i", [-(2**31), 2**31 - 1]),
        ("INT64", "q", [-(2**63), 2**63 - 1]),
    ],
)
def test_integers(dtype, form, values):
    assert json.loads(data_of(dtype, struct.pack(f"<2{form}", *values), 2))["outputs"][0]["data"] == values


def test_truth_values():
    assert b'"data":[false,true,true]' in data_of("BOOL", b"\0\1\2", 3)


def test_strings_pass_as_raw_bytes():
    text = data_of("BYTES", strings(b"a", b"", b'\xff\0"\n'), 3)
    assert b'"data":["a","","\xff\\u0000\\"\\n"]' in text


@pytest.mark.parametrize(
    "data", [strings(b"a", b"b"), strings(b"a", b"b", b"c", b"d"), strings(b"a", b"b") + b"\x09\0\0\0"]
)
def test_strings_that_do_not_fill_the_shape_are_the_models_fault(data):
    with pytest.raises(Internal, match="output tensor shape does not match size of output for 'O'|asks for"):
        data_of("BYTES", data, 3)


@pytest.mark.parametrize("dtype", ["FP16", "BF16"])
def test_half_floats_need_binary(dtype):
    with pytest.raises(BadRequest, match=f"sending {dtype} data via JSON is not supported"):
        data_of(dtype, b"\0\0", 1)
    request = ask(dtype=dtype, parameters={"binary_data_output": True})
    assert render(request, (0, BY_WIRE[dtype].code, [1], b"ab"))[1] == b"ab"


def test_no_elements():
    assert b'"shape":[0],"data":[]}' in data_of("FP32", b"", 0)
    text, tail = render(ask(parameters={"binary_data_output": True}), (0, FP32, [0], b""))
    assert (b'{"binary_data_size":0}' in text, tail) == (True, b"")


def test_scalars():
    assert b'"shape":[],"data":[2.0]}' in render(ask(dims=()), (0, FP32, [], F2[4:]))[0]


def test_no_outputs():
    assert render(ask()) == (HEAD + b"]}", b"")


WHOLE = st.integers(-(2**24), 2**24).map(float) | st.sampled_from([-0.0, 1e9, -1e9, 999999936.0])
NUMBERS = st.floats(width=32) | WHOLE


@given(st.lists(NUMBERS, max_size=300))
def test_floats_survive(values):
    text = data_of("FP32", struct.pack(f"<{len(values)}f", *values), len(values))
    assert str(json.loads(text)["outputs"][0]["data"]) == str([float(v) for v in values])


@given(st.lists(st.integers(-999_999_999, 999_999_999).map(float), min_size=1, max_size=50))
def test_floats_without_a_fraction_are_written_as_all_others(values):
    text = data_of("FP64", struct.pack(f"<{len(values)}d", *values), len(values))
    assert b'"data":' + orjson.dumps(values) in text


@pytest.mark.parametrize("n", [4095, 4096, 4097, 8192, 10000])
def test_long_tensors_are_written_in_pieces(n):
    text = data_of("FP32", struct.pack(f"<{n}f", *range(n)), n)
    assert json.loads(text)["outputs"][0]["data"] == [float(i) for i in range(n)]


@given(st.binary(max_size=60), st.integers(0, 6))
def test_any_string_bytes_are_rendered_or_refused(data, n):
    try:
        text = data_of("BYTES", data, n)
    except Internal:
        return
    assert text.endswith(b"]}]}")


@pytest.mark.parametrize(
    ("code", "shape", "data", "text"),
    [
        (9, [1], struct.pack("<q", -3), b'{"name":"O","datatype":"INT64","shape":[1],"data":[-3]}'),
        (6, [2, 1], b"\x01\xff", b'{"name":"O","datatype":"INT8","shape":[2,1],"data":[1,-1]}'),
        (12, [], struct.pack("<d", 0.5), b'{"name":"O","datatype":"FP64","shape":[],"data":[0.5]}'),
        (13, [1], strings(b"a"), b'{"name":"O","datatype":"BYTES","shape":[1],"data":["a"]}'),
    ],
)
def test_an_output_is_rendered_as_what_it_is(code, shape, data, text):
    assert render(ask(dtype="FP32", dims=(2,)), (0, code, shape, data)) == (HEAD + text + b"]}", b"")
