"""Whose memory answers, tensors and requests may name, how far each is read, and what is said of memory beyond it."""

from __future__ import annotations

import hashlib
import os
import struct

import pytest

from tests.native.helpers import ShmFile
from tests.wire.helpers import (
    FP32,
    answer,
    answer_bytes,
    arena,
    body,
    model,
    read_record,
    request_for,
    strings,
    tensor,
)
from tisfast import limits, tuning
from tisfast.errors import Internal, TisError
from tisfast.native.memory import Arena
from tisfast.native.region import Regions, SystemRegion
from tisfast.wire import infer, record, respond
from tisfast.wire.compose import compose_request
from tisfast.wire.fingerprint import fingerprint
from tisfast.wire.joined_answer import join
from tisfast.wire.outputs import waits_for_threads, write_regions
from tisfast.wire.tensors import in_block, in_region

F3 = struct.pack("<3f", 1, 2.5, -3)
F2 = F3[:8]
LARGE = tuning.REFERENCE_BYTES_MIN
TRACED, FOREIGN = 32, 16
LIED = "the worker of model 'm' version 1 gave a broken answer: "


def flags_of(request):
    return struct.unpack_from("<H", request.record, 6)[0]


def asked(outputs=("O", "P"), **fields):
    return request_for(model(outputs=outputs), tensor(data=[1, 2.5, -3]), **fields)


def client_memory(nbytes):
    """A client's memory, and how it shrinks."""
    fd = os.memfd_create("client")
    os.truncate(fd, nbytes)
    region = SystemRegion("r", "/r", fd, 0, nbytes)
    return region, lambda: os.ftruncate(region.file.fd, 0)


def block_of(data, of=None):
    block = (of or arena()).take_block(len(data))
    memoryview(block)[:] = data
    return block


# ---- requests


def test_a_trace_is_noted_in_the_record_and_changes_nothing_else():
    request = asked()
    before = read_record(request)
    request.mark_traced()
    after = read_record(request)
    assert flags_of(request) == TRACED
    assert (after[0] | {"flags": 0}, *after[1:]) == before


def test_what_is_not_the_requests_is_not_read():
    place = arena(1 << 20)
    before = place.take_block(64)
    request = infer.parse(model(), place, body(tensor(data=[1, 2.5, -3]))[0])
    (offset,) = struct.unpack_from("<Q", request.record, 64)
    assert request.read(offset, 12) == F3
    for at, nbytes in ((before.offset, 12), (offset, 1 << 40), (1 << 40, 1), ((1 << 64) - 1, 0)):
        with pytest.raises(Internal) as caught:
            request.read(at, nbytes)
        assert caught.value.message == f"bytes {at} to {at + nbytes} lie outside the blocks of this request"


# ---- answers of workers


def read_raw(data, record_bytes, outputs=("O", "P")):
    block = Arena("out", 1 << 23, 1 << 22).take_block(len(data))
    memoryview(block)[: len(data)] = data
    return record.read(asked(outputs), block, record_bytes)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ([(2, FP32, [2], F2)], "output index 2 is beyond the model's 2 outputs"),
        ([(1, 0, [2], F2)], "output 'P' has data type code 0; known codes are 1 to 14"),
        ([(1, FP32, [1, -2], F2)], "output 'P' has the negative dimension -2"),
        ([(1, FP32, [1 << 31, 1 << 31], F2)], "the shape of output 'P' overflows"),
        ([(0, FP32, [2], F2), (1, FP32, [1], F2)], "output 'P' has 8 bytes, its shape asks for 4"),
        ([(0, FP32, [2], 3, 64, 8)], "output 'O' at arena 3, offset 64, 8 bytes lies outside the answer's blocks"),
        ([(0, FP32, [2], 0, 7, 8)], "output 'O' at arena 0, offset 7, 8 bytes lies outside the request's blocks"),
        ([(0, FP32, [1] * 33, F2[:4])], "output 0 claims 33 dimensions; 33 follow, 32 is the limit"),
    ],
)
def test_an_output_that_cannot_be_is_named_with_all_that_is_wrong(outputs, text):
    place = arena(1 << 20)
    before = place.take_block(64)  # so that no request's begins at 0
    request = infer.parse(model(outputs=("O", "P")), place, body(tensor(data=[1, 2, 3]))[0])
    with pytest.raises(Internal) as caught:
        answer(request, outputs)
    assert caught.value.message == LIED + text and before.offset < 64


def changed(at, form, value, **options):
    data, record_bytes = answer_bytes([(0, FP32, [2], F2)], **options)
    out = bytearray(data)
    struct.pack_into("<" + form, out, at, value)
    return bytes(out), record_bytes


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (changed(4, "H", 65), "it has 65 outputs; 64 is the limit"),
        (changed(0, "I", 24), "its record has 56 bytes, its parts need 64"),
        (changed(8, "I", 1), "its record has 56 bytes, its parts need 57"),
        (changed(4, "H", 2), "its record has 56 bytes, its parts need 80"),
        (changed(4, "H", 2, parameters=b"{}" + b" " * 22), "its record has 80 bytes, its parts need 104"),
        (changed(0, "I", 8), "output 0 claims 1 dimensions; 0 follow, 32 is the limit"),
        (changed(0, "I", 7), "its signature of 7 bytes ends before output 0 of 1"),
        (changed(4, "H", 0), "16 bytes are left over in its signature of 16 bytes"),
    ],
)
def test_a_record_whose_parts_do_not_fit_is_named(made, text):
    with pytest.raises(Internal) as caught:
        read_raw(*made)
    assert caught.value.message == LIED + text


@pytest.mark.parametrize("record_bytes", [0, 15, 1 << 31])
def test_a_record_is_within_its_block(record_bytes):
    data, _ = answer_bytes([(0, FP32, [2], F2)])
    with pytest.raises(Internal) as caught:
        read_raw(data, record_bytes)
    text = f"its record of {record_bytes} bytes does not fit its block of {len(data)} bytes"
    assert caught.value.message == LIED + text


def test_parameters_of_an_answer_are_bounded():
    most = limits.ANSWER_PARAMETERS_BYTES_MAX
    text = b'{"a":"%b"}' % (b"x" * (most - 8))
    assert answer(asked(), [], parameters=text).parameters == text
    with pytest.raises(Internal) as caught:
        answer(asked(), [], parameters=text[:-2] + b'x"}')
    assert caught.value.message == (
        f"model 'm' returned {most + 1} bytes of response parameters; {most} is the limit")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"), [(b"null", "null"), (b"[{}]", "[...]"), (b"3", "3"), (b'"a"', "'a'"), (b"true", "true")]
)
def test_parameters_that_are_no_object_are_shown(text, shown):
    with pytest.raises(Internal) as caught:
        answer(asked(), [], parameters=text)
    assert caught.value.message == f"{LIED}its parameters are no JSON object but {shown}"


@pytest.mark.parametrize("text", [rb'{"a":"\ud800"}', rb'{"\uDC00":1}', rb'{"a":{"b":["\udfff\ud83d"]}}'])
def test_parameters_with_half_a_surrogate_pair_are_refused(text):
    with pytest.raises(Internal, match="its parameters are no text: .* is half a surrogate pair"):
        answer(asked(), [], parameters=text)


def test_parameters_with_a_whole_surrogate_pair_are_taken():
    text = rb'{"a":"\ud83d\ude00"}'
    assert answer(asked(), [], parameters=text).parameters == text


@pytest.mark.parametrize("number", [-1, 1, 1 << 20])
def test_an_answer_has_no_further_outputs(number):
    got = answer(asked(), [(0, FP32, [2], F2)])
    with pytest.raises(IndexError):
        got.output(number)


def test_more_kinds_of_answers_than_are_remembered():
    request = asked()
    for n in [*range(limits.ANSWER_LAYOUTS_MAX + 3), 0, 1]:
        assert answer(request, [(0, FP32, [n], bytes(4 * n))]).output(0)[2] == [n]


# ---- tensors


def test_a_tensor_gives_as_much_of_its_start_as_it_has():
    made = in_block("I", FP32, (3,), block_of(b"...." + F3 + b"...."), 4, 12)
    assert (made.start(0), made.start(5), made.start(12), made.start(1 << 40)) == (b"", F3[:5], F3, F3)
    assert made.bytes() == F3
    assert repr(made) == f"Tensor('I', FP32, [3], 12 bytes at {made.offset})"


def test_a_tensor_under_another_name_is_the_same_memory():
    place = arena()
    made = in_block("I", FP32, (3,), block_of(F3, place), 0, 12)
    again = made.renamed_as("J")
    assert (again.name, again.dtype, again.shape, again.offset, again.file) == ("J", FP32, (3,), made.offset, place)
    del made
    assert again.bytes() == F3 and place.used_blocks == 1


def test_memory_of_a_client_that_shrank_is_told_at_each_look():
    region, shrink = client_memory(64)
    made = in_region("I", FP32, (4,), region, 16, 16)
    assert made.bytes() == bytes(16)
    shrink()
    for look in (made.bytes, lambda: made.start(1)):
        with pytest.raises(TisError, match="has shrunk to 0 bytes"):
            look()


# ---- answers that are joined


def joined(*tensors, outputs=("O", "P")):
    request = compose_request(model(("I",), outputs), arena(), [in_block("I", FP32, (1,), block_of(bytes(4)), 0, 4)])
    return join(request, list(tensors))


def test_clients_memory_in_a_joined_answer_is_copied_while_it_is_there():
    region, shrink = client_memory(64)
    got = joined(in_region("P", FP32, (4,), region, 16, 16), in_region("O", FP32, (0,), region, 0, 0))
    shrink()
    assert [got.output(i) for i in range(2)] == [("P", "FP32", [4], bytes(16)), ("O", "FP32", [0], b"")]
    with pytest.raises(TisError, match="has shrunk to 0 bytes"):
        joined(in_region("P", FP32, (4,), region, 16, 16))


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ([(3,)] * 65, "model 'm' has 65 outputs in one answer; 64 is the limit"),
        ([(3,), (1,) * 33], "output 'O' of model 'm' has 33 dimensions; 32 is the limit"),
        ([(3,), (4,)], "output 'O' of model 'm' has 12 bytes, its shape asks for 16"),
        ([(2,)], "output 'O' of model 'm' has 12 bytes, its shape asks for 8"),
    ],
)
def test_what_no_answer_can_be_joined_of(tensors, text):
    block = block_of(F3)
    with pytest.raises(Internal) as caught:
        joined(*[in_block("O", FP32, shape, block, 0, 12) for shape in tensors])
    assert caught.value.message == text


def test_a_joined_answer_of_as_many_outputs_as_there_may_be():
    names = [f"O{i}" for i in range(limits.OUTPUTS_MAX)]
    got = joined(*[in_block(name, FP32, (3,), block_of(F3), 0, 12) for name in names], outputs=names)
    assert [got.output(i)[0] for i in range(got.count)] == names


def test_strings_may_take_more_than_their_lengths():
    data = strings(b"ab", b"c")
    got = joined(in_block("O", 13, (2,), block_of(data), 0, len(data)))
    assert got.output(0) == ("O", "BYTES", [2], data)
    with pytest.raises(Internal, match="has 11 bytes, its shape asks for 12"):
        joined(in_block("O", 13, (3,), block_of(data), 0, len(data)))


# ---- outputs that go into regions


@pytest.fixture
def client():
    """A client's file of 64 bytes, and regions that have it as 'r'."""
    with ShmFile(bytes(64)) as file:
        regions = Regions()
        regions.add(SystemRegion("r", file.key, file.open(), 0, 64))
        yield file, regions


def into(name, nbytes, offset=0):
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": nbytes, "shared_memory_offset": offset}
    return {"name": name, "parameters": parameters}


def answered(regions, *outputs, made=((0, FP32, [3], F3), (1, FP32, [2], F2))):
    text, _ = body(tensor(data=[1, 2, 3]), outputs=list(outputs))
    return answer(infer.parse(model(outputs=("O", "P")), arena(), text, regions=regions), list(made))


HALF = bytes(tuning.LOOP_COPY_BYTES_MAX // 2)


@pytest.mark.parametrize(
    ("outputs", "waits"),
    [
        ([{"name": "O"}, {"name": "P"}], False),
        ([into("O", 12), {"name": "P"}], False),
        ([into("O", len(HALF)), into("P", len(HALF) + 4, len(HALF))], True),
        ([into("O", len(HALF))], False),  # the other is not asked for
        ([{"name": "O", "parameters": {"classification": 1}}, into("P", len(HALF) + 4)], False),
    ],
)
def test_threads_write_what_is_long_in_all(outputs, waits):
    with ShmFile(bytes(3 * len(HALF))) as file:
        regions = Regions()
        regions.add(SystemRegion("r", file.key, file.open(), 0, 3 * len(HALF)))
        made = ((0, FP32, [len(HALF) // 4], HALF), (1, FP32, [len(HALF) // 4 + 1], HALF + bytes(4)))
        assert waits_for_threads(answered(regions, *outputs, made=made)) == waits


def test_outputs_are_written_into_regions_and_nowhere_else(client):
    file, regions = client
    got = answered(regions, into("O", 12, 4), into("P", 8, 20))
    write_regions(got)
    assert file.data == bytes(4) + F3 + bytes(4) + F2 + bytes(36)
    assert respond.render(got)[1] == b""
    one = answered(regions, into("P", 8, 40), made=[(0, FP32, [3], F3[::-1]), (1, FP32, [2], F2)])
    write_regions(one)
    assert file.data == bytes(4) + F3 + bytes(4) + F2 + bytes(12) + F2 + bytes(16)


def test_a_region_that_is_too_small_for_what_came_is_told_before_anything_is_sent(client):
    file, regions = client
    with pytest.raises(Internal) as caught:
        write_regions(answered(regions, into("O", 11)))
    assert caught.value.message == (
        "shared memory size specified with the request for output 'O' (11 bytes) should be at least 12 bytes to hold "
        "the results, in region 'r'"
    )
    assert file.data == bytes(64)


# ---- what requests are told apart by


def of(request):
    return fingerprint(request, hashlib.blake2b(digest_size=16))


def test_an_input_that_lies_elsewhere_is_told_by_its_bytes():
    data = bytes(range(256)) * (LARGE // 256 + 1)
    count = len(data) // 4
    there = compose_request(model(), arena(), [in_block("I", FP32, (count,), block_of(data), 0, len(data))])
    again = compose_request(model(), arena(), [in_block("I", FP32, (count,), block_of(data), 0, len(data))])
    other = compose_request(model(), arena(), [in_block("I", FP32, (count,), block_of(data[::-1]), 0, len(data))])
    assert flags_of(there) == FOREIGN and of(there) == of(again) != of(other)


def test_clients_memory_may_change_and_so_its_request_has_no_fingerprint():
    region, _ = client_memory(LARGE)
    assert of(compose_request(model(), arena(), [in_region("I", FP32, (LARGE // 4,), region, 0, LARGE)])) is None
    small = compose_request(model(), arena(), [in_region("I", FP32, (3,), region, 0, 12)])  # is copied
    assert of(small) == of(request_for(model(), tensor(data=[0, 0, 0])))


def test_a_trace_does_not_count():
    request = asked()
    before = of(request)
    request.mark_traced()
    assert of(request) == before
