"""JSON as protobuf's reader takes it: what is beyond JSON, where errors are, and that JSON itself stays what it is."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format, struct_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from tisfast.config.lenient_json import loads

TAKEN = [
    ("{}", {}),
    ("{a: 1}", {"a": 1}),
    ("{ a : 1 }", {"a": 1}),
    ("{a\n:\t1}", {"a": 1}),
    ("{_a: 1, $b: 2, A9_: 3}", {"_a": 1, "$b": 2, "A9_": 3}),
    ("{trueish: 1, nulls: 2}", {"trueish": 1, "nulls": 2}),
    ("{'a': 'b'}", {"a": "b"}),
    ("{'a': \"b\", \"c\": 'd'}", {"a": "b", "c": "d"}),
    ("{'a': 'say \"x\"'}", {"a": 'say "x"'}),
    (r"{'a': 'it\'s'}", {"a": "it's"}),
    (r"{'a': 'x\ny\\z\u0041'}", {"a": "x\ny\\zA"}),
    (r"{\'a\': 1}".replace("\\", ""), {"a": 1}),
    ('{"a": "it\'s"}', {"a": "it's"}),
    ("[1, 2,]", [1, 2]),
    ("[1, 2 , ]", [1, 2]),
    ("{a: [ {b: 1,}, ], }", {"a": [{"b": 1}]}),
    ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
    ("{'a': 'x\ny'}", {"a": "x\ny"}),
    ("{'a': 'b: c, }'}", {"a": "b: c, }"}),
    ('{"a": "{b: 1,}", c: 1}', {"a": "{b: 1,}", "c": 1}),
    ("{a: true, b: false, c: null}", {"a": True, "b": False, "c": None}),
    ("{'': 1}", {"": 1}),
    ("'text'", "text"),
    (" \n[ ]\n ", []),
    ("{'é': 'ü'}", {"é": "ü"}),
]


@pytest.mark.parametrize(("text", "value"), TAKEN)
def test_what_is_taken(text, value):
    assert loads(text, dict) == value


REFUSED = [  # text, line, column: of the text as it was written
    ("", 1, 1),
    ("{", 1, 2),
    ("{a 1}", 1, 2),
    ("{a: 1", 1, 2),
    ("{a: b}", 1, 2),
    ("{1a: 1}", 1, 2),
    ("{a-b: 1}", 1, 2),
    ("{é: 1}", 1, 2),
    ("{true: 1}", 1, 2),
    ("{null : 1}", 1, 2),
    ("{\n  'a': 1,,\n}", 2, 3),
    ('{\n "a": 1,\n "b": ,\n}', 3, 7),
    ("[,1]", 1, 2),
    ("[1,,]", 1, 4),
    ("{'a': 'b}", 1, 2),
    ('{"a": "b}', 1, 7),
    ("{'a': 'b'} c", 1, 2),
    ('{"a": 1} {', 1, 10),
    ("{'a': 0x1}", 1, 2),
    ("{a: 1 /* c */}", 1, 2),
    ("{a: 1} // c", 1, 2),
    ('{"a": "\\q"}', 1, 8),
    ("{'a': '\\", 1, 2),
    ("['a' 'b']", 1, 2),
]


@pytest.mark.parametrize(("text", "line", "column"), REFUSED)
def test_what_is_refused_has_its_place_in_the_text_as_written(text, line, column):
    with pytest.raises(json.JSONDecodeError) as caught:
        loads(text, dict)
    assert (caught.value.lineno, caught.value.colno) == (line, column)


@pytest.mark.parametrize(
    "text", [case[0] for case in TAKEN if case[0].startswith("{") and "é" not in case[0] and "\n" not in case[0]]
)
def test_protobufs_reader_of_json_agrees_where_it_takes_json(text):
    """Python's takes JSON alone; what it takes is read alike."""
    message = struct_pb2.Struct()
    try:
        json_format.Parse(text, message)
    except json_format.ParseError:
        return
    assert json_format.MessageToDict(message) == loads(text, dict)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_json_is_read_as_json(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert loads(text, dict) == value


WORDS = ("true", "false", "null")
NAMES = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,6}", fullmatch=True).filter(lambda name: name not in WORDS)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\\"), max_size=8)


def written(value, quote):
    """A value with bare keys, other quotation marks and commas at every end."""
    if isinstance(value, dict):
        return "{" + "".join(f"{name} : {written(each, quote)} ,\n" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"{written(each, quote)}, " for each in value) + "]"
    if isinstance(value, str):
        return quote + value.replace(quote, f"\\{quote}") + quote
    return json.dumps(value)


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
        lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(NAMES, inner, min_size=1, max_size=3),
        max_leaves=10,
    ),
    st.sampled_from("'\""),
)
def test_what_is_beyond_json_is_read_as_what_it_means(value, quote):
    assert loads(written(value, quote), dict) == value


PIECES = ["{", "}", "[", "]", ",", ":", "a", "true", "1", "'", '"', "\\", "\n", " ", "$", "é"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_no_text_ends_the_reader_otherwise_than_by_an_error_with_a_place(pieces):
    text = "".join(pieces)
    try:
        loads(text, dict)
    except json.JSONDecodeError as error:
        assert 1 <= error.lineno <= text.count("\n") + 1 and error.colno >= 1


def test_pairs_are_given_in_their_order_with_those_that_come_twice():
    found = []
    loads("{b: 1, a: 2, b: 3,}", lambda pairs: found.extend(pairs) or dict(pairs))
    assert found == [("b", 1), ("a", 2), ("b", 3)]
