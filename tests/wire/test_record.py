"""Answer records: what a worker says is believed only as far as it can be checked."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.helpers import answer, answer_bytes, arena, binary, body, model, request_for, strings, tensor
from tisfast.errors import Internal
from tisfast.native.memory import Arena
from tisfast.wire import infer, record

F2 = struct.pack("<2f", 1, 2)
FP32 = 11


def ask(signature=None, batch=None):
    shape = [2] if batch is None else [batch, 2]
    return request_for(signature or model(), tensor(shape=shape, data=[[1, 2]] * (batch or 1)))


def test_outputs_are_where_the_worker_says():
    outputs = [(0, FP32, [2], F2), (1, FP32, [0], b"")]
    got = answer(ask(model(outputs=("X", "Y"))), outputs, parameters=b'{"a":1}')
    assert [got.output(0), got.output(1)] == [("X", "FP32", [2], F2), ("Y", "FP32", [0], b"")]
    assert got.output_start(0, 3) == ("X", "FP32", [2], F2[:3], 8)
    assert got.output_start(0, -1) == ("X", "FP32", [2], b"", 8)
    assert got.parameters == b'{"a":1}'


def test_outputs_come_in_the_workers_order():
    got = answer(ask(model(outputs=("X", "Y"))), [(1, FP32, [2], F2), (0, FP32, [2], F2)])
    assert [got.output(0)[0], got.output(1)[0]] == ["Y", "X"]


def test_an_input_may_be_passed_through():
    place = arena()
    text, n = body(binary(shape=[2], nbytes=8), tail=F2)
    request = infer.parse(model(), place, text, n)
    offset = struct.unpack_from("<Q", request.record, 64)[0]
    got = answer(request, [(0, FP32, [2], 0, offset, 8)])
    del request
    assert got.output(0)[3] == F2
    assert place.used_blocks == 1
    del got
    assert place.used_blocks == 0


def test_the_block_lives_as_long_as_the_answer():
    out = Arena("out", 1 << 20, 1 << 19)
    got = answer(ask(), [(0, FP32, [2], F2)], of=out)
    assert out.used_blocks == 1
    del got
    assert out.used_blocks == 0


@pytest.mark.parametrize(
    ("outputs", "match"),
    [
        ([(7, FP32, [2], F2)], "output index 7 is beyond the model's 2 outputs"),
        ([(0, 99, [2], F2)], "output 'X' has data type code 99; known codes are 1 to 14"),
        ([(0, 12, [2], F2)], "has 8 bytes, its shape asks for 16"),
        ([(0, 6, [2], F2)], "has 8 bytes, its shape asks for 2"),
        ([(0, 13, [3], F2)], "has 8 bytes, its shape asks for 12"),
        ([(0, FP32, [-2], F2)], "negative dimension -2"),
        ([(0, FP32, [2**62], F2)], "overflows"),
        ([(0, FP32, [1] * 33, F2)], "claims 33 dimensions"),
        ([(0, FP32, [3], F2)], "has 8 bytes, its shape asks for 12"),
        ([(0, FP32, [2], 1, 2**63, 8)], "lies outside the answer's blocks"),
        ([(0, FP32, [2], 1, 1 << 25, 8)], "lies outside the answer's blocks"),
        ([(0, FP32, [2], 1, 600, 2**64 - 1)], "lies outside the answer's blocks"),
        ([(0, FP32, [2], 0, 1 << 25, 8)], "lies outside the request's blocks"),
        ([(0, FP32, [2], 2, 600, 8)], "arena 2"),
    ],
)
def test_lies_are_named(outputs, match):
    with pytest.raises(Internal) as caught:
        answer(ask(model(outputs=("X", "Y"))), outputs)
    assert match in str(caught.value)


@pytest.mark.parametrize(
    ("output", "datatype"),
    [
        ((0, FP32, [3, 2], F2 * 3), "FP32"),
        ((0, FP32, [2, 2], F2 * 2), "FP32"),  # rows of another batch
        ((0, FP32, [2], F2), "FP32"),  # no batch dimension
        ((0, FP32, [], F2[:4]), "FP32"),
        ((0, 9, [1], F2), "INT64"),
        ((0, 2, [2, 4], F2), "UINT8"),
    ],
)
def test_an_output_is_what_the_worker_says_not_what_the_configuration_does(output, datatype):
    got = answer(ask(model(dims=[2], max_batch=4), 3), [output])
    assert got.output(0) == ("O", datatype, output[2], output[3])


def test_an_output_may_be_there_twice():
    got = answer(ask(), [(0, FP32, [2], F2), (0, FP32, [1], F2[:4])])
    assert [got.output(i)[2:] for i in range(2)] == [([2], F2), ([1], F2[:4])]


@pytest.mark.parametrize(("data", "fine"), [(strings(b"a", b"bc"), True), (b"\0" * 7, False), (b"", False)])
def test_string_outputs_have_room_for_their_lengths(data, fine):
    signature = model(dtype="BYTES")
    request = request_for(signature, tensor(shape=[1], datatype="BYTES", data=["x"]))
    if fine:
        assert answer(request, [(0, 13, [2], data)]).output(0)[3] == data
    else:
        with pytest.raises(Internal, match="its shape asks for 8"):
            answer(request, [(0, 13, [2], data)])


def test_an_empty_string_output_has_no_bytes():
    request = request_for(model(dtype="BYTES"), tensor(shape=[1], datatype="BYTES", data=["x"]))
    with pytest.raises(Internal, match="has 4 bytes, its shape asks for 0"):
        answer(request, [(0, 13, [0], b"\0\0\0\0")])


def read_raw(data, record_bytes, request=None):
    out = Arena("out", 1 << 20, 1 << 19)
    block = out.take_block(max(len(data), 1))
    memoryview(block)[: len(data)] = data
    return record.read(request or ask(), block, record_bytes)


@pytest.mark.parametrize("cut", range(0, 64, 4))
def test_a_record_that_ends_early_is_refused(cut):
    data, record_bytes = answer_bytes([(0, FP32, [2], F2)])
    with pytest.raises(Internal):
        read_raw(data, min(cut, record_bytes - 1))


@given(st.binary(max_size=200), st.integers(0, 250))
def test_any_bytes_are_an_answer_or_a_named_lie(data, record_bytes):
    try:
        read_raw(data, record_bytes)
    except Internal as error:
        assert "model 'm'" in str(error)


@given(st.data())
def test_any_damage_is_an_answer_or_a_named_lie(data):
    outputs = [(0, FP32, [2], F2), (1, FP32, [2], F2)]
    whole, record_bytes = answer_bytes(outputs, parameters=b"{}")
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, record_bytes - 1))] = data.draw(st.integers(0, 255))
    try:
        read_raw(bytes(damaged), record_bytes, ask(model(outputs=("X", "Y"))))
    except Internal as error:
        assert "model 'm'" in str(error)


@pytest.mark.parametrize(
    "parameters",
    [b"5", b"{", b'"{}"', b"[]", b"{},", b"null", b'{"a":"\xff"}', b"{}}", b'{"a":' * 5000, b"[" * 200_000],
)
def test_parameters_that_are_no_object_are_a_broken_answer(parameters):
    with pytest.raises(Internal, match="gave a broken answer: its parameters are no JSON"):
        answer(ask(), [(0, FP32, [2], F2)], parameters=parameters)
