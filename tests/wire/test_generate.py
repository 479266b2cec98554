"""Generate bodies in both directions; tests/oracle asks the real Triton the same."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.helpers import FP32, answer, arena, model, read_record, strings
from tisfast.errors import BadRequest, Internal, TisError
from tisfast.wire import generate


def parse(signature, body, **options):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return generate.parse(signature, arena(), text, **options)


@pytest.mark.parametrize(
    ("dims", "max_batch", "count", "shape"),
    [
        ((-1,), 0, 0, [0]),
        ((-1,), 0, 3, [3]),
        ((4,), 0, 4, [4]),
        ((4,), 8, 8, [2, 4]),
        ((-1, -1), 0, 6, [1, 6]),
        ((-1, 3), 0, 6, [2, 3]),
        ((-1, 3), 4, 6, [1, 2, 3]),
        ((3, -1), 0, 6, [3, 2]),
    ],
)
def test_elements_fill_the_shape_of_the_input(dims, max_batch, count, shape):
    _, tensors, _ = read_record(parse(model(dims=dims, max_batch=max_batch), {"I": [1.5] * count}))
    assert tensors == [(0, FP32, shape, struct.pack(f"<{count}f", *[1.5] * count))]


@pytest.mark.parametrize(("dims", "count"), [((4,), 3), ((4,), 8), ((4,), 0), ((2, 2), 2)])
def test_elements_that_cannot_fill_it_are_refused(dims, count):
    with pytest.raises(BadRequest, match="The schema can not convert input 'I' to tensor with proper shape"):
        parse(model(dims=dims), {"I": [1] * count})


def test_other_keys_are_parameters_whatever_their_name():
    body = {"I": 1, "id": "q", "priority": -1, "triton_x": True, "parameters": {"temperature": 0.5, "id": "inner"}}
    request = parse(model(), body)
    head, _, (identity, parameters, _) = read_record(request)
    assert (identity, request.id, request.priority, head["timeout"]) == (b"q", "q", 0, 0)
    assert json.loads(parameters) == {"id": "inner", "priority": -1, "triton_x": True, "temperature": 0.5}


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (b"x", Internal, "failed to parse the request JSON buffer"),
        ([], Internal, "attempt to get members for non-object"),
        ({"I": 1, "p": None}, BadRequest, "parameter 'p' has invalid type"),
        ({"X": [1, 2]}, BadRequest, "(it is no input either: the model's inputs are 'I')"),
        ({"parameters": {"p": []}}, BadRequest, "Converting keyword: 'parameters': parameter 'p' has invalid type"),
        ({"parameters": 1}, Internal, "Expected JSON object for keyword: 'parameters'"),
        ({"I": "x"}, Internal, "attempt to access JSON non-number as double"),
        ({"id": 1, "I": 1}, Internal, "Unable to parse 'id'"),
        ({}, BadRequest, "expected 1 inputs but got 0 inputs"),
    ],
)
def test_what_is_wrong_is_said_in_tritons_words(body, error, words):
    with pytest.raises(error, match=words):
        parse(model(), body)


def test_an_answer_is_an_object_of_its_outputs_and_parameters():
    request = parse(model(outputs=("O", "P")), {"I": 1, "id": 'a"b'})
    made = answer(
        request,
        [(0, FP32, [1], struct.pack("<f", 2)), (1, FP32, [2], struct.pack("<2f", 3, 4))],
        parameters=b'{"tokens":7}',
    )
    assert json.loads(generate.render(made)) == {
        "id": 'a"b',
        "model_name": "m",
        "model_version": "1",
        "tokens": 7,
        "O": 2.0,
        "P": [3.0, 4.0],
    }


@pytest.mark.parametrize(
    ("identity", "parameters", "left"),
    [
        ("a", {"id": "b", "model_name": "x", "model_version": 7, "O": 1, "P": 1, "p": 2}, {"p": 2}),
        ("", {"id": "b", "O": 1}, {"id": "b"}),
        ("", {"O": "x"}, {}),
    ],
)
def test_a_parameter_does_not_take_a_key_of_the_answers(identity, parameters, left):
    request = parse(model(outputs=("O", "P")), {"I": 1, **({"id": identity} if identity else {})})
    made = answer(request, [(0, FP32, [1], struct.pack("<f", 2))], parameters=json.dumps(parameters).encode())
    own = {**({"id": identity} if identity else {}), "model_name": "m", "model_version": "1", "O": 2.0}
    pairs = json.loads(generate.render(made), object_pairs_hook=list)
    assert sorted(pairs) == sorted({**own, **left}.items())


def test_strings_and_empty_outputs():
    request = parse(model(dtype="BYTES"), {"I": ["a", "b"]})
    assert json.loads(generate.render(answer(request, [(0, 13, [1], strings(b"x\n"))])))["O"] == "x\n"
    assert json.loads(generate.render(answer(request, [(0, 13, [0], b"")])))["O"] == []


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just({}),
    st.just({"I": [1]}),
    st.lists(st.one_of(st.integers(-300, 300), st.floats(), st.text(max_size=2), st.booleans()), max_size=4),
)


@given(
    st.dictionaries(st.sampled_from(["I", "J", "id", "parameters", "x"]), VALUES),
    st.sampled_from(["FP32", "BYTES", "INT8", "BOOL"]),
)
def test_any_object_is_taken_or_refused_and_no_block_stays(body, dtype):
    place = arena()
    try:
        request = generate.parse(model(("I", "J"), dtype=dtype, optional=("J",)), place, json.dumps(body).encode())
    except TisError:
        request = None
    del request
    assert place.used_blocks == 0
