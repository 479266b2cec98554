"""What requests are told apart by: all that the model can see, and nothing else."""

from __future__ import annotations

import hashlib
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.helpers import arena, binary, body, model, request_for, strings, tensor
from tisfast.wire import infer
from tisfast.wire.fingerprint import fingerprint


def of(request):
    return fingerprint(request, hashlib.blake2b(digest_size=16))


def plain(shape=(2,), data=(1, 2), signature=None, **fields):
    return request_for(signature or model(), tensor(shape=shape, data=list(data)), **fields)


TWO = model(inputs=("I", "J"), outputs=("X", "Y"))


def both(i=(1,), j=(2,), **fields):
    return request_for(TWO, tensor("I", [len(i)], data=list(i)), tensor("J", [len(j)], data=list(j)), **fields)


DIFFERENT = {
    "plain": both,
    "other bytes": lambda: both(i=(3,)),
    "inputs exchanged": lambda: both(i=(2,), j=(1,)),
    "bytes moved between inputs": lambda: both(i=(1, 2), j=()),
    "bytes moved the other way": lambda: both(i=(), j=(1, 2)),
    "one output": lambda: both(outputs=[{"name": "X"}]),
    "the other output": lambda: both(outputs=[{"name": "Y"}]),
    "a parameter": lambda: both(parameters={"a": 1}),
    "another value": lambda: both(parameters={"a": 2}),
    "another type of value": lambda: both(parameters={"a": "1"}),
    "a sequence id": lambda: both(parameters={"sequence_id": 5}),
    "a text sequence id": lambda: both(parameters={"sequence_id": "5"}),
    "a sequence start": lambda: both(parameters={"sequence_id": 5, "sequence_start": True}),
    "a sequence end": lambda: both(parameters={"sequence_id": 5, "sequence_end": True}),
    "a timeout": lambda: both(parameters={"timeout": 5}),
}


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(DIFFERENT, 2)))
def test_requests_that_a_model_can_tell_apart_differ(one, other):
    assert of(DIFFERENT[one]()) != of(DIFFERENT[other]())


@pytest.mark.parametrize("what", DIFFERENT)
def test_equal_requests_are_equal(what):
    assert of(DIFFERENT[what]()) == of(DIFFERENT[what]())


def test_shapes_of_the_same_bytes_differ():
    signature = model(dims=(-1, -1))
    shapes = [(1, 4), (4, 1), (2, 2)]
    assert len({of(plain(shape, (1, 2, 3, 4), signature)) for shape in shapes}) == 3


def test_types_of_the_same_bytes_differ():
    floats = request_for(model(), tensor(shape=[1], data=[0]))
    numbers = request_for(model(dtype="INT32"), tensor(shape=[1], datatype="INT32", data=[0]))
    assert of(floats) != of(numbers)


def test_an_input_that_is_left_out_differs_from_an_empty_one():
    signature = model(inputs=("I", "J"), optional=("J",))
    without = request_for(signature, tensor("I", [1], data=[1]))
    empty = request_for(signature, tensor("I", [1], data=[1]), tensor("J", [0], data=[]))
    assert of(without) != of(empty)


@pytest.mark.parametrize(
    "more", [{"id": "x"}, {"id": "y" * 100}, {"outputs": [{"name": "O", "parameters": {"binary_data": True}}]}]
)
def test_the_id_and_the_form_of_the_answer_do_not_count(more):
    assert of(plain(**more)) == of(plain())


def test_the_way_that_tensors_come_does_not_count():
    text, head_bytes = body(binary(shape=[2], nbytes=8), tail=struct.pack("<2f", 1, 2))
    assert of(infer.parse(model(), arena(), text, head_bytes)) == of(plain())


def test_the_order_of_inputs_in_the_request_does_not_count():
    exchanged = request_for(TWO, tensor("J", [1], data=[2]), tensor("I", [1], data=[1]))
    assert of(exchanged) == of(both())


@given(st.lists(st.text(max_size=6), min_size=1, max_size=4), st.lists(st.text(max_size=6), min_size=1, max_size=4))
def test_strings_are_told_apart(one, other):
    def ask(texts):
        tail = strings(*(text.encode() for text in texts))
        text, n = body(binary(shape=[len(texts)], nbytes=len(tail), datatype="BYTES"), tail=tail)
        return infer.parse(model(dtype="BYTES"), arena(), text, n)

    assert (of(ask(one)) == of(ask(other))) == (one == other)
