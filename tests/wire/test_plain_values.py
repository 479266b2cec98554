"""Models, requests and answers as plain values: what is described is rebuilt, and no description is believed."""

from __future__ import annotations

import os
import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.helpers import ShmFile
from tests.wire.helpers import FP32, answer, arena, binary, body, model, read_record, strings, tensor
from tisfast import tuning
from tisfast.errors import BadRequest, Internal, NotFound
from tisfast.native.memory import Arena
from tisfast.native.region import Regions, SystemRegion
from tisfast.types import BY_CODE
from tisfast.wire import infer, respond
from tisfast.wire.compose import aim, compose_request
from tisfast.wire.joined_answer import join
from tisfast.wire.plain_values import describe, describe_model, rebuild, rebuild_model
from tisfast.wire.signature import ModelSignature
from tisfast.wire.tensors import in_block, in_region

BYTES = 13
F3 = struct.pack("<3f", 1, 2.5, -3)
HEAD_BYTES = 48
NOWHERE = -1


# ---- models

INPUTS = st.tuples(
    st.text(max_size=5), st.sampled_from(sorted(BY_CODE)), st.lists(st.integers(-1, 9), max_size=3).map(tuple),
    st.booleans(), st.booleans(),
)  # fmt: skip
OUTPUTS = st.tuples(
    st.text(max_size=5), st.sampled_from(sorted(BY_CODE)), st.lists(st.integers(-1, 9), max_size=3).map(tuple),
    st.lists(st.binary(max_size=4), max_size=3).map(tuple),
)  # fmt: skip


@given(
    st.text(max_size=9), st.integers(0, 2**63).map(str), st.integers(0, 99), st.booleans(),
    st.lists(INPUTS, max_size=4), st.lists(OUTPUTS, max_size=4),
)  # fmt: skip
def test_a_model_is_the_same_in_another_process(name, version, max_batch, decoupled, inputs, outputs):
    given_ = ModelSignature(name, version, max_batch, decoupled, inputs, outputs)
    got = rebuild_model(pickle.loads(pickle.dumps(describe_model(given_))))  # of plain values alone
    assert describe_model(got) == describe_model(given_)
    assert [(s.name, s.index, s.dtype, s.dims, s.optional, s.ragged) for s in got.inputs] == [
        (s.name, s.index, s.dtype, s.dims, s.optional, s.ragged) for s in given_.inputs]  # fmt: skip
    assert [(s.name, s.dims, s.labels) for s in got.outputs] == [(s.name, s.dims, s.labels) for s in given_.outputs]
    assert (got.required_inputs, got.batches_vary, got.record_room, got.all_outputs) == (
        given_.required_inputs, given_.batches_vary, given_.record_room, given_.all_outputs)  # fmt: skip
    assert got.copies_regions  # it cannot map clients' memory


# ---- requests


def described(request, *, split=False):
    """As a codec process describes a request: its values, and the blocks in which record and tensors lie."""
    place = Arena("server", 1 << 22, 1 << 21)
    record = bytearray(request.record)
    signature_bytes, count = struct.unpack_from("<IH", record)
    at = (HEAD_BYTES + signature_bytes + 7) & ~7
    tensors = [bytes_ for *_, bytes_ in read_record(request)[1]]
    starts, end = [], 0 if split else (len(record) + 63) & ~63
    for data in tensors:
        starts.append(end)
        end += (len(data) + 63) & ~63
    home = place.take_block(end if not split else len(record))
    other = place.take_block(max(end, 1)) if split else home
    for i, (start, data) in enumerate(zip(starts, tensors, strict=True)):
        struct.pack_into("<2Q", record, at + 16 * i, other.offset + start, len(data))
        memoryview(other)[start : start + len(data)] = data
    memoryview(home)[: len(record)] = record
    choice = request.outputs
    ways = None
    if choice.ways is not None:
        ways = [(i, way.classes, way.region, way.offset, way.nbytes, way.unsized) for i, way in choice.ways.items()]
    return [
        1 if split else NOWHERE, 0, home.offset, len(record), request.id, request.batch, request.priority,
        request.timeout_us, request.correlation, request.sequence_flags, request.requested, request.shape_key,
        (choice.binary_default, choice.listed, choice.in_regions, choice.empty_final, choice.binary, choice.special,
         ways),
        [],
    ], [home, other] if split else [home]  # fmt: skip


def parse(*inputs, signature=None, regions=None, tail=b"", **fields):
    text, n = body(*inputs, tail=tail, **fields)
    return infer.parse(signature or model(), arena(), text, n if tail else -1, regions=regions)


SEQUENCE = {"sequence_id": "s", "sequence_start": True, "timeout": 9, "priority": 2, "mine": 1.5}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("fields", "max_batch", "shape"),
    [
        ({}, 0, [3]),
        ({"id": "a\N{SNOWMAN}", "parameters": SEQUENCE}, 4, [1, 3]),
        ({"outputs": [{"name": "P"}]}, 8, [3, 1]),
    ],
)
def test_a_request_is_the_same_over_blocks_of_the_server(fields, max_batch, shape, split):
    signature = model(outputs=("O", "P"), max_batch=max_batch)
    request = parse(tensor(shape=shape, data=[1, 2.5, -3]), signature=signature, **fields)
    values, blocks = described(request, split=split)
    got = rebuild(signature, tuple(values), blocks, None)
    assert read_record(got) == read_record(request)
    assert (got.model, got.id, got.batch, got.shape_key) == (signature, request.id, request.batch, request.shape_key)
    assert (got.priority, got.timeout_us, got.requested) == (request.priority, request.timeout_us, request.requested)
    assert (got.correlation, got.sequence_flags) == (request.correlation, request.sequence_flags)


FLOATS = st.binary(max_size=70).map(lambda data: data[: len(data) // 4 * 4])


@settings(max_examples=60)
@given(st.lists(FLOATS, min_size=1, max_size=5), st.booleans())
def test_tensors_of_any_number_and_size(tensors, split):
    names = [f"I{i}" for i in range(len(tensors))]
    signature = model(inputs=names)
    inputs = [binary(name, [len(data) // 4], len(data)) for name, data in zip(names, tensors, strict=True)]
    values, blocks = described(parse(*inputs, signature=signature, tail=b"".join(tensors)), split=split)
    got = rebuild(signature, tuple(values), blocks, None)
    assert [data for *_, data in read_record(got)[1]] == tensors


def test_the_form_of_outputs_goes_with_the_request():
    signature = model(outputs=("O", "P"))
    outputs = [{"name": "P", "parameters": {"classification": 2}}, {"name": "O", "parameters": {"binary_data": True}}]
    values, blocks = described(parse(tensor(data=[1, 2, 3]), signature=signature, outputs=outputs))
    got = rebuild(signature, tuple(values), blocks, None)
    text, tail = respond.render(answer(got, [(0, FP32, [3], F3), (1, FP32, [3], F3)]))
    assert b'"data":["2.500000:1","1.000000:0"]' in text and tail == F3


def test_the_blocks_live_as_long_as_the_request():
    values, blocks = described(parse(tensor(data=[1, 2.5, -3])))
    got = rebuild(model(), tuple(values), blocks, None)
    blocks.clear()
    assert read_record(got)[1][0][3] == F3


LIED = "a codec process gave a broken request for model 'm': {} lies outside its blocks"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (0, 3, "a codec named block 3, and had 1"),
        (1, 1, "a codec named block 1, and had 1"),
        (1, -2, "a codec named block -2, and had 1"),
        (1, NOWHERE, LIED.format("its record at offset {offset}, {record} bytes,")),
        (2, 1 << 40, LIED.format(f"its record at offset {1 << 40}, {{record}} bytes,")),
        (3, HEAD_BYTES - 1, LIED.format(f"its record at offset {{offset}}, {HEAD_BYTES - 1} bytes,")),
        (3, 1 << 31, LIED.format(f"its record at offset {{offset}}, {1 << 31} bytes,")),
    ],
)
def test_a_record_that_is_not_where_it_is_said_to_be_is_refused(field, value, text):
    values, blocks = described(parse(tensor(data=[1, 2, 3])))
    expected = text.format(offset=blocks[0].offset, record=values[3])
    values[field] = value
    with pytest.raises(Internal) as caught:
        rebuild(model(), tuple(values), blocks, None)
    assert caught.value.message == expected


@pytest.mark.parametrize(
    ("at", "form", "value", "text"),
    [
        (0, "I", 1 << 20, f"a record of 1 inputs at offset {{offset}}, {HEAD_BYTES + (1 << 20) + 16} bytes,"),
        (4, "H", 2, "a record of 2 inputs at offset {offset}, {need_16} bytes,"),
        (32, "I", 1 << 20, "a record of 1 inputs at offset {offset}, {need_id} bytes,"),
        (64, "Q", 1 << 40, f"input 0 at offset {1 << 40}, 12 bytes,"),
        (72, "Q", 1 << 40, f"input 0 at offset {{place}}, {1 << 40} bytes,"),
    ],
)
def test_a_record_whose_parts_lie_outside_is_refused(at, form, value, text):
    values, blocks = described(parse(tensor(data=[1, 2, 3])))
    record = memoryview(blocks[0])
    expected = text.format(
        offset=blocks[0].offset, need_16=values[3] + 16, need_id=values[3] + (1 << 20),
        place=struct.unpack_from("<Q", record, 64)[0],
    )  # fmt: skip
    struct.pack_into("<" + form, record, at, value)
    with pytest.raises(Internal) as caught:
        rebuild(model(), tuple(values), blocks, None)
    assert caught.value.message == LIED.format(expected)


def test_a_place_of_an_empty_input_says_nothing():
    values, blocks = described(parse(tensor(shape=[0], data=[])))
    struct.pack_into("<Q", memoryview(blocks[0]), 64, 1 << 40)
    rebuild(model(), tuple(values), blocks, None)


# ---- answers


def read_files(description, files):
    """The bytes of each output, None for one that lies nowhere."""
    *_, places = description
    return [
        None if position == NOWHERE else os.pread(files[position].fd, nbytes, offset)
        for position, offset, nbytes in places
    ]


def test_an_answer_says_where_its_outputs_lie():
    request = parse(tensor(data=[1, 2, 3]), signature=model(outputs=("O", "P", "Q")), id="7")
    out = Arena("out", 1 << 20, 1 << 19)
    given_ = answer(
        request, [(2, FP32, [3], F3), (0, FP32, [0], b""), (1, FP32, [1], F3[:4])], parameters=b'{"a":1}', of=out
    )
    description, files = describe(given_)
    assert files == [out] and read_files(description, files) == [F3, None, F3[:4]]
    id, batch, requested, choice, signature, count, parameters, places = pickle.loads(pickle.dumps(description))
    assert (id, batch, requested, count, parameters) == ("7", 1, 7, 3, b'{"a":1}')
    assert signature == given_.signature and [nbytes for *_, nbytes in places] == [12, 0, 4]
    assert choice == (False, False, False, False, 0, 0, None)


def test_an_input_that_was_passed_on_lies_in_the_requests_memory():
    place = arena()
    text, n = body(binary(), tail=F3)
    request = infer.parse(model(outputs=("O", "P")), place, text, n)
    offset = struct.unpack_from("<Q", request.record, 64)[0]
    out = Arena("out", 1 << 20, 1 << 19)
    description, files = describe(answer(request, [(0, FP32, [3], 0, offset, 12), (1, FP32, [3], F3[::-1])], of=out))
    assert files == [place, out] and read_files(description, files) == [F3, F3[::-1]]


def test_a_file_is_named_once_whatever_lies_in_it():
    out = Arena("out", 1 << 20, 1 << 19)
    request = parse(tensor(data=[1, 2, 3]), signature=model(outputs=("O", "P")))
    _, files = describe(answer(request, [(0, FP32, [3], F3), (1, FP32, [3], F3)], of=out))
    assert files == [out]


def test_an_answer_of_many_places():
    one, two = Arena("one", 1 << 20, 1 << 19), Arena("two", 1 << 20, 1 << 19)
    found = []
    for name, place in (("P", one), ("O", two)):
        block = place.take_block(12)
        memoryview(block)[:] = F3
        found.append(in_block(name, FP32, (3,), block, 0, 12))
    request = compose_request(model(outputs=("O", "P")), arena(), [found[0].renamed_as("I")])
    description, files = describe(join(request, found))
    assert files == [one, two] and read_files(description, files) == [F3, F3]


LONG = tuning.REFERENCE_BYTES_MIN


def test_clients_memory_that_was_passed_on_lies_in_a_copy():
    """Its owner may take it away while another process reads it."""
    place = arena()
    fd = os.memfd_create("client")
    os.truncate(fd, LONG)
    region = SystemRegion("r", "/r", fd, 0, LONG)
    request = compose_request(model(), place, [in_region("I", FP32, (LONG // 4,), region, 0, LONG)])
    (at,) = aim(request, 5)
    got = answer(request, [(0, FP32, [LONG // 4], 0, at, LONG)])
    os.ftruncate(region.file.fd, 0)
    description, files = describe(got)
    assert files == [place] and read_files(description, files) == [bytes(LONG)]


def test_a_foreign_input_of_the_servers_own_that_was_passed_on_lies_where_it_was():
    theirs = arena()
    block = theirs.take_block(LONG)
    memoryview(block)[:] = b"\7" * LONG
    request = compose_request(model(), arena(), [in_block("I", FP32, (LONG // 4,), block, 0, LONG)])
    (at,) = aim(request, 5)
    description, files = describe(answer(request, [(0, FP32, [LONG // 4], 0, at, LONG)]))
    assert files == [theirs] and read_files(description, files) == [b"\7" * LONG]


# ---- outputs in clients' regions


@pytest.fixture
def client():
    """A client's file of 64 bytes, and regions that have it as 'r'."""
    with ShmFile(bytes(64)) as file:
        regions = Regions()
        regions.add(SystemRegion("r", file.key, file.open(), 0, 64))
        yield file, regions


def into(nbytes=32, offset=16):
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": nbytes, "shared_memory_offset": offset}
    return {"name": "O", "parameters": parameters}


def test_an_output_for_a_region_is_written_there_and_described_as_nowhere(client):
    file, regions = client
    request = parse(tensor(data=[1, 2, 3]), signature=model(outputs=("O", "P")), regions=regions,
                    outputs=[into(), {"name": "P"}])  # fmt: skip
    got = answer(request, [(0, FP32, [3], F3), (1, FP32, [3], F3[::-1])])
    assert file.data == bytes(64)
    description, files = describe(got)
    assert read_files(description, files) == [None, F3[::-1]] and description[-1][0] == (NOWHERE, 0, 12)
    assert file.data == bytes(16) + F3 + bytes(36)


def test_a_request_for_a_region_is_bound_to_the_one_of_that_name(client):
    file, regions = client
    values, blocks = described(parse(tensor(data=[1, 2, 3]), regions=regions, outputs=[into()]))
    got = rebuild(model(), tuple(values), blocks, regions)
    regions.remove("r")
    respond.render(answer(got, [(0, FP32, [3], F3)]))
    assert file.data == bytes(16) + F3 + bytes(36)
    with pytest.raises(NotFound) as caught:
        rebuild(model(), tuple(values), blocks, regions)
    assert caught.value.message == "Unable to find shared memory region: 'r'"


def test_a_request_for_more_than_its_region_has_is_refused(client):
    _, regions = client
    values, blocks = described(parse(tensor(data=[1, 2, 3]), regions=regions, outputs=[into()]))
    *form, ways = values[-2]
    values[-2] = (*form, [(0, 0, "r", 16, 49, False)])
    with pytest.raises(BadRequest, match=r"Invalid offset \+ byte size .* 'r' \(output 'O': offset 16 \+ byte_size 49"):
        rebuild(model(), tuple(values), blocks, regions)


def test_strings_are_described_as_any_bytes():
    signature = model(dtype="BYTES")
    request = parse(tensor(shape=[1], datatype="BYTES", data=["x"]), signature=signature)
    data = strings(b"a", b"", b"bc")
    description, files = describe(answer(request, [(0, BYTES, [3], data)]))
    assert read_files(description, files) == [data]
