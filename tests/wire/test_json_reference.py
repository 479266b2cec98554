"""JSON beside Python's json and numpy: what they read, so do we; what is no JSON is refused wherever it breaks."""

from __future__ import annotations

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.wire.helpers import answer, arena, model, read_record, request_for, strings, tensor
from tisfast.errors import BadRequest, Internal, TisError
from tisfast.limits import JSON_DEPTH_MAX
from tisfast.types import BY_WIRE
from tisfast.wire import infer, json_data, respond
from tisfast.wire.signature import ModelSignature

SPELLED = [name for name in BY_WIRE if name not in ("FP16", "BF16", "BYTES")]
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
LAYOUTS = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.sampled_from([None, 0, 2, "\t"]),
        "separators": st.sampled_from([(",", ":"), (" , ", " : "), (",\n", ":\t")]),
    }
)


def finite(text):
    """A number as Python reads it, unless it is beyond all doubles."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def refuses(text):
    try:
        json_data.load(text)
    except TisError:
        return True
    return False


# ---- texts


@given(VALUES, LAYOUTS)
def test_a_text_is_read_as_it_was_written_whatever_its_layout(value, layout):
    assert json_data.load(json.dumps(value, **layout).encode()) == value


@given(VALUES, st.sampled_from([math.nan, math.inf, -math.inf]), LAYOUTS)
def test_so_is_one_with_a_word_that_json_has_not(value, odd, layout):
    got = json_data.load(json.dumps([value, odd], **layout).encode())
    assert got[0] == value and str(got[1]) == str(odd)


WHOLE = b'{"a":[1,-2.5e+3,"x\\n\\u00e9",true,null],"b":{"c":[]}}'


@pytest.mark.parametrize("more", [b"", b" ", b'{"NaN":', b"[NaN,"])
@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_a_text_that_ends_early_is_refused_wherever_it_ends(cut, more):
    assert refuses(more + WHOLE[:cut])


@pytest.mark.parametrize("odd", [b"\0", b"\x01", b"\xff", b"\xc3\x28", b"}", b"'", b"\\", b"/", b"+", b"NaN1", b"tru"])
@pytest.mark.parametrize("at", range(len(WHOLE) + 1))
def test_a_byte_too_many_is_judged_as_by_pythons_json(at, odd):
    text = WHOLE[:at] + odd + WHOLE[at:]
    try:
        expected = json.loads(text.decode())
    except ValueError:
        assert refuses(text)
    else:
        assert json_data.load(text) == expected


@settings(max_examples=300)
@given(st.binary(max_size=12), st.integers(0, len(WHOLE)), st.integers(0, 6))
def test_any_change_is_judged_as_by_pythons_json(odd, at, gone):
    text = WHOLE[:at] + odd + WHOLE[at + gone :]
    try:
        expected = json.loads(text.decode(), parse_float=finite)
    except ValueError:
        if b"Inf" not in text and b"-NaN" not in text:  # which Triton takes, too
            assert refuses(text)
    else:
        assert str(json_data.load(text)) == str(expected)


SPACE = [b" ", b"\t", b"\n", b"\r", b" \r\n\t "]
TOKENS = [b"{", b'"a"', b":", b"[", b"1", b",", b"-2.5e3", b",", b'"x"', b",", b"true", b"]", b"}"]


@pytest.mark.parametrize("space", SPACE)
@pytest.mark.parametrize("at", range(len(TOKENS) + 1))
def test_space_may_stand_between_any_two_tokens(at, space):
    assert json_data.load(b"".join(TOKENS[:at]) + space + b"".join(TOKENS[at:])) == {"a": [1, -2500.0, "x", True]}


@pytest.mark.parametrize("space", [b"\x0b", b"\x0c", b"\xa0", b"\xc2\xa0", b"\xef\xbb\xbf", b"//x\n", b"/**/"])
@pytest.mark.parametrize("word", [b"1", b"NaN"])
def test_other_space_and_comments_are_none(space, word):
    assert refuses(b"[" + space + word + b"]") and refuses(space + b"[" + word + b"]")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"Inf", math.inf), (b"-Inf", -math.inf), (b"Infinity", math.inf), (b"-Infinity", -math.inf),
        (b"NaN", math.nan), (b"-NaN", math.nan),
        (b'"Inf"', "Inf"), (b'"\\"Inf"', '"Inf'), (b'"-NaN"', "-NaN"), (b'"\\\\"', "\\"),
    ],
)  # fmt: skip
def test_words_of_tritons_parser(text, value):
    for near in (b"[%b]", b"[NaN,%b]", b'["Inf",%b]', b"[ %b ]"):
        assert str(json_data.load(near % text)[-1]) == str(value)


@pytest.mark.parametrize(
    "text", [b"inf", b"nan", b"INF", b"+Inf", b"Infinit", b"NAN", b"--Inf", b"Inf1", b"1NaN", b"- Inf"]
)
def test_other_spellings_are_none(text):
    assert refuses(b"[" + text + b"]")


@given(st.text(st.sampled_from('a\\"NIfn\N{SNOWMAN}\N{GRINNING FACE}'), max_size=12), LAYOUTS)
def test_such_words_within_strings_stay(text, layout):
    assert json_data.load(json.dumps([math.inf, text, "Inf"], **layout).encode()) == [math.inf, text, "Inf"]


@pytest.mark.parametrize("half", ["\\ud800", "\\udfff", "a\\ud83d", "\\ude00\\ud83d", "\\ud800\\u0041"])
@pytest.mark.parametrize("odd", ["", ",NaN"])
def test_half_a_pair_is_no_text(half, odd):
    assert refuses(f'["{half}"{odd}]'.encode())


@pytest.mark.parametrize("depth", [1, 99, 100, 500])
def test_a_text_may_be_deep_and_its_tensors_may_not(depth):
    text = b"[" * depth + b"1" + b"]" * depth
    value = json_data.load(text)
    if depth < JSON_DEPTH_MAX:
        assert json_data.numbers(value, 11, 1, 4) == struct.pack("<f", 1)
        return
    with pytest.raises(BadRequest) as caught:
        json_data.numbers(value, 11, 1, 4)
    assert caught.value.message == "Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)"


# ---- numbers


def parsed(dtype, text, n):
    """The tensor of a body with these numbers, the second time from what is remembered of the first."""
    signature = model(dtype=dtype)
    head = f'{{"inputs":[{{"name":"I","datatype":"{dtype}","shape":[{n}],"data":['
    found = [
        read_record(infer.parse(signature, arena(), (head + each + "]}]}").encode()))[1][0][3]
        for each in (",".join(["true" if dtype == "BOOL" else "1"] * n), text, text)
    ]
    assert found[1] == found[2]
    return found[1]


ARRAYS = st.sampled_from(SPELLED).flatmap(
    lambda dtype: st.tuples(
        st.just(dtype), arrays(BY_WIRE[dtype].numpy, st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple))
    )
)


@settings(max_examples=200)
@given(ARRAYS)
def test_a_numpy_array_arrives_as_it_was_and_goes_back(pair):
    dtype, array = pair
    signature = model(dtype=dtype, dims=[-1] * array.ndim)
    request = request_for(signature, tensor(shape=array.shape, datatype=dtype, data=array.tolist()))
    ((_, code, shape, data),) = read_record(request)[1]
    got = np.frombuffer(data, BY_WIRE[dtype].numpy).reshape(shape)
    assert (code, shape) == (BY_WIRE[dtype].code, list(array.shape))
    assert np.array_equal(got, array, equal_nan=array.dtype.kind == "f")
    text, tail = respond.render(answer(request, [(0, code, list(array.shape), array.tobytes())]))
    (output,) = json.loads(text)["outputs"]
    back = np.array(output["data"], BY_WIRE[dtype].numpy).reshape(output["shape"])
    assert tail == b"" and np.array_equal(back, array, equal_nan=array.dtype.kind == "f")


INFO = {name: np.iinfo(BY_WIRE[name].numpy) for name in SPELLED if "INT" in name}
EXTREMES = {
    **{name: [info.min, info.max, 0, 1] for name, info in INFO.items()},
    **{
        name: [float(v) for v in (info.max, info.min, info.tiny, info.smallest_subnormal, info.eps, -0.0, 0.0)]
        for name, info in (("FP32", np.finfo(np.float32)), ("FP64", np.finfo(np.float64)))
    },
    "BOOL": [True, False],
}


@pytest.mark.parametrize(("dtype", "value"), [(dtype, value) for dtype, values in EXTREMES.items() for value in values])
def test_each_extreme_of_each_type(dtype, value):
    expected = np.array([value], BY_WIRE[dtype].numpy).tobytes()
    assert parsed(dtype, json.dumps(value), 1) == expected
    request = request_for(model(dtype=dtype), tensor(shape=[1], datatype=dtype, data=[value]))
    text, _ = respond.render(answer(request, [(0, BY_WIRE[dtype].code, [1], expected)]))
    (back,) = json.loads(text)["outputs"][0]["data"]
    assert np.array([back], BY_WIRE[dtype].numpy).tobytes() == expected


@pytest.mark.parametrize(("dtype", "beyond"), [(name, info.max + 1) for name, info in INFO.items()])
def test_one_more_than_the_last_integer_is_refused(dtype, beyond):
    for value in (beyond, INFO[dtype].min - 1):
        with pytest.raises((BadRequest, Internal), match="Unable to parse 'data'"):
            parsed(dtype, str(value), 1)


NUMBER = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,2})?", fullmatch=True)


@settings(max_examples=300)
@given(st.lists(NUMBER, min_size=1, max_size=5), st.sampled_from(["FP32", "FP64"]))
@example(["9007199254740993.0"], "FP64")
@example(["0.1", "1e22", "1e23", "123456789012345678"], "FP64")
@example(["16777217.0", "0.30000001192092896"], "FP32")
def test_floats_are_rounded_as_python_and_numpy_round_them(texts, dtype):
    values = [float(json.loads(text)) for text in texts]
    with np.errstate(over="ignore"):
        expected = np.array(values).astype(BY_WIRE[dtype].numpy)
    assert parsed(dtype, ",".join(texts), len(texts)) == expected.tobytes()


@pytest.mark.parametrize(
    "text", ["1.", ".5", "01", "-", "+1", "1e", "1e+", "0x1", "1_000", "--1", "1..2", "1e1.5", "-01"]
)
@pytest.mark.parametrize("dtype", ["FP32", "INT32"])
def test_what_is_no_number_of_json_is_refused(text, dtype):
    for texts in (text, f"1,{text}", f"{text},1"):
        with pytest.raises(Internal, match="failed to parse the request JSON buffer"):
            parsed(dtype, texts, texts.count(",") + 1)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_numbers_of_many_digits_in_tensors_of_any_length(n):
    values = [float(2**60 + i) * 3.3e-25 for i in range(n)]
    text = ",".join(f"{value:.25e}" for value in values)
    assert parsed("FP64", text, n) == np.array([float(each) for each in text.split(",")]).tobytes()


@given(st.lists(st.lists(TEXT, max_size=3), max_size=3))
def test_nested_strings_come_in_order(value):
    flat = [text.encode() for part in value for text in part]
    request = request_for(model(dtype="BYTES"), tensor(shape=[len(flat)], datatype="BYTES", data=value))
    assert read_record(request)[1] == [(0, 13, [len(flat)], strings(*flat))]


@given(st.lists(TEXT, max_size=6))
def test_strings_go_back_as_pythons_json_reads_them(texts):
    signature = ModelSignature("m", "1", 0, False, [("I", 11, (-1,), False, False)], [("O", 13, (-1,))])
    request = request_for(signature, tensor(shape=[1], data=[1]))
    text, _ = respond.render(answer(request, [(0, 13, [len(texts)], strings(*[each.encode() for each in texts]))]))
    assert json.loads(text)["outputs"][0]["data"] == texts
