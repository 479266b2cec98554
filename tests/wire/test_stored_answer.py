"""Answers as the cache keeps them: what comes back is what was given, and nothing that comes back is believed."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire.helpers import FP32, answer, model, request_for, strings, tensor
from tisfast.errors import Internal
from tisfast.native.memory import Arena
from tisfast.wire.respond import render
from tisfast.wire.stored_answer import pack, unpack

F2 = struct.pack("<2f", 1, 2)
BYTES = 13


def ask(signature=None, **fields):
    return request_for(signature or model(), tensor(shape=[2], data=[1, 2]), **fields)


def block_of(data):
    block = Arena("cache", 1 << 20, 1 << 19).take_block(len(data))
    memoryview(block)[: len(data)] = data
    return block


def restored(request, data):
    return unpack(request, block_of(data))


def outputs_of(got):
    return [got.output(i) for i in range(got.count)]


def test_what_was_stored_comes_back():
    signature = model(outputs=("X", "Y"))
    given_ = answer(ask(signature), [(1, FP32, [2], F2), (0, FP32, [0], b"")], parameters=b'{"a":1}')
    got = restored(ask(signature), pack(given_))
    assert outputs_of(got) == outputs_of(given_)
    assert (got.signature, got.parameters) == (given_.signature, given_.parameters)


def test_it_answers_another_request_with_that_requests_id_and_choice_of_outputs():
    signature = model(outputs=("X", "Y"))
    packed = pack(answer(ask(signature, id="one"), [(0, FP32, [2], F2), (1, FP32, [2], F2)]))
    text, tail = render(restored(ask(signature, id="two", outputs=[{"name": "Y"}]), packed))
    assert b'"id":"two"' in text and b'"Y"' in text and b'"X"' not in text
    assert tail == b""


def test_strings_keep_their_lengths():
    signature = model(outputs=("X",), dtype="BYTES")
    request = request_for(signature, tensor(shape=[2], datatype="BYTES", data=["a", "bc"]))
    data = strings(b"", b"\xff\0z")
    got = restored(request, pack(answer(request, [(0, BYTES, [2], data)])))
    assert got.output(0) == ("X", "BYTES", [2], data)


TENSORS = st.binary(max_size=200).map(lambda data: data[: len(data) // 4 * 4])


@given(st.lists(TENSORS, max_size=4), st.dictionaries(st.text(), st.text()).map(lambda some: json.dumps(some).encode()))
def test_any_answer_comes_back(tensors, parameters):
    signature = model(outputs=tuple("ABCD"))
    given_ = answer(
        ask(signature), [(i, FP32, [len(data) // 4], data) for i, data in enumerate(tensors)], parameters=parameters
    )
    got = restored(ask(signature), pack(given_))
    assert outputs_of(got) == outputs_of(given_)
    assert got.parameters == parameters


def test_the_block_lives_as_long_as_the_answer():
    place = Arena("cache", 1 << 20, 1 << 19)
    data = pack(answer(ask(), [(0, FP32, [2], F2)]))
    block = place.take_block(len(data))
    memoryview(block)[:] = data
    got = unpack(ask(), block)
    del block
    assert place.used_blocks == 1
    assert got.output(0)[3] == F2
    del got
    assert place.used_blocks == 0


PACKED = pack(answer(ask(), [(0, FP32, [2], F2)], parameters=b"{}"))
CONTENT_END = PACKED.index(F2) + len(F2)


@pytest.mark.parametrize("cut", range(0, CONTENT_END, 8))
def test_what_ends_early_is_refused(cut):
    with pytest.raises(Internal, match=r"cache keeps for model 'm' version 1 is no answer|broken answer"):
        restored(ask(), PACKED[:cut] or b"\0")


@given(st.integers(0, len(PACKED) - 1), st.integers(1, 255))
@example(18, 11 ^ 13)  # of its type
def test_a_changed_byte_is_refused_or_changes_no_more_than_content(at, change):
    data = bytearray(PACKED)
    data[at] ^= change
    try:
        got = restored(ask(), bytes(data))
    except Internal:
        return
    name, datatype, shape, content = got.output(0)
    assert (name, shape, len(content)) == ("O", [2], 8)
    assert datatype in {"FP32", "INT32", "UINT32", "BYTES"}  # of one least size: nothing else tells which it was
    if datatype == "BYTES" and content == F2:  # no strings, as whoever reads them finds
        with pytest.raises(Internal, match="output tensor shape does not match size of output for 'O'"):
            render(got)


@given(st.binary(max_size=400))
def test_anything_else_is_refused(data):
    with pytest.raises(Internal):
        restored(ask(), data or b"\0")


@pytest.mark.parametrize(
    "output", [(0, 9, [1, 1], F2), (0, FP32, [2], F2), (0, FP32, [], F2[:4]), (0, 13, [2], strings(b"a", b"bc"))]
)
def test_an_answer_that_the_configuration_does_not_have_comes_back_as_it_was(output):
    request = request_for(model(dims=[2], max_batch=4), tensor(shape=[1, 2], data=[1, 2]))
    kept = answer(request, [output])
    assert restored(request, pack(kept)).output(0) == kept.output(0)
