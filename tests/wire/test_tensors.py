"""Inputs in clients' shared memory: which are read where they lie, and what happens to outputs that are such inputs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from tests.native.helpers import ShmFile
from tests.wire.helpers import answer, arena, body, model, read_record, tensor
from tisfast import limits, tuning
from tisfast.descriptors import message_class
from tisfast.errors import Internal, TisError
from tisfast.native.region import Regions, SystemRegion
from tisfast.wire import infer, respond
from tisfast.wire.compose import aim, answer_tensors, input_tensors
from tisfast.wire.grpc import infer as grpc_infer

LARGE = tuning.REFERENCE_BYTES_MIN // 4
NBYTES = 4 * LARGE
FP32 = 11
AT = 64
NUMBERS = struct.pack(f"<{LARGE}f", *range(LARGE))


@pytest.fixture
def files():
    """Files of a client, `files(data)`, and the regions they are registered as: a, b, ..."""
    made, table = [], Regions()

    def make(data: bytes = bytes(AT) + NUMBERS, offset: int = 0) -> ShmFile:
        file = ShmFile(data)
        name = chr(ord("a") + len(made))
        table.add(SystemRegion(name, file.key, file.open(), offset, len(data) - offset))
        made.append(file)
        return file

    make.table = table
    yield make
    for file in made:
        file.path.unlink(missing_ok=True)


def lies(region="a", nbytes=NBYTES, offset=AT):
    return {"shared_memory_region": region, "shared_memory_byte_size": nbytes, "shared_memory_offset": offset}


def http(table, inputs=("I",), *, signature=None, place=None, outputs=None, nbytes=NBYTES, datatype="FP32"):
    entries = [tensor(name, [nbytes // 4], datatype, parameters=lies(nbytes=nbytes)) for name in inputs]
    fields = {"outputs": outputs} if outputs else {}
    text, _ = body(*entries, **fields)
    return infer.parse(signature or model(inputs), place or arena(), text, regions=table)


def grpc(table, inputs=("I",), *, signature=None, place=None, nbytes=NBYTES):
    given = {"shared_memory_region": {"string_param": "a"}, "shared_memory_byte_size": {"int64_param": nbytes},
             "shared_memory_offset": {"int64_param": AT}}  # fmt: skip
    entries = [{"name": name, "datatype": "FP32", "shape": [nbytes // 4], "parameters": given} for name in inputs]
    request = ParseDict({"model_name": "m", "inputs": entries}, message_class("inference.ModelInferRequest")())
    return grpc_infer.parse(signature or model(inputs), place or arena(), request.SerializeToString(), regions=table)


def flags_of(request) -> int:
    return struct.unpack_from("<H", request.record, 6)[0]


@pytest.mark.parametrize("front", [http, grpc])
def test_a_large_input_stays_in_its_region(files, front):
    files()
    place, signature = arena(), model()
    for _ in range(2):  # the second time from what is remembered
        request = front(files.table, place=place, signature=signature)
        assert flags_of(request) == 16 and place.used_bytes < NBYTES
        (found,) = input_tensors(request)
        assert found.bytes() == NUMBERS and found.file.guarded and found.shape == (LARGE,)


@pytest.mark.parametrize("front", [http, grpc])
def test_what_is_small_is_copied(files, front):
    files()
    request = front(files.table, nbytes=NBYTES - 4)
    assert flags_of(request) == 0 and read_record(request)[1][0][3] == NUMBERS[:-4]


@pytest.mark.parametrize("front", [http, grpc])
def test_models_that_rely_on_what_they_were_sent_get_a_copy(files, front):
    files()
    signature = model()
    signature.copies_regions = True  # a decoupled model's, and one's with a response cache
    assert flags_of(front(files.table, signature=signature)) == 0


def test_strings_were_checked_and_so_they_are_copied(files):
    data = struct.pack("<I", NBYTES - 4) + bytes(NBYTES - 4)
    files(bytes(AT) + data)
    text, _ = body(tensor("I", [1], "BYTES", parameters=lies()))
    request = infer.parse(model(dtype="BYTES"), arena(), text, regions=files.table)
    assert flags_of(request) == 0 and read_record(request)[1][0][3] == data


def test_a_region_may_begin_anywhere_in_its_file(files):
    files(bytes(5000) + bytes(AT) + NUMBERS, offset=5000)
    (found,) = input_tensors(http(files.table))
    assert (found.offset, found.bytes()) == (5000 + AT, NUMBERS)


def test_more_inputs_than_the_bound(files):
    files()
    names = [f"I{i}" for i in range(limits.FOREIGN_INPUTS_MAX + 2)]
    found = input_tensors(http(files.table, names, place=arena(1 << 28)))
    assert [each.file.guarded for each in found].count(True) == limits.FOREIGN_INPUTS_MAX
    assert all(each.bytes() == NUMBERS for each in found)


def test_a_file_that_has_shrunk_is_told_when_the_request_comes(files):
    file = files()
    file.truncate(NBYTES)
    place = arena()
    with pytest.raises(TisError, match=f"has shrunk to {NBYTES} bytes, {AT + NBYTES} are needed"):
        http(files.table, place=place)


def identity(request, share=3):
    """What a worker answers that returns its input as it is."""
    (place,) = aim(request, share)
    return answer(request, [(0, FP32, [LARGE], 0, place, NBYTES)])


def test_an_input_that_is_returned_goes_from_region_to_region(files):
    files()
    target = files(bytes(NBYTES))
    into = {"name": "O", "parameters": {**lies("b"), "shared_memory_offset": 0}}
    place = arena()
    request = http(files.table, outputs=[into], place=place)
    before = place.used_blocks
    got = identity(request)
    assert got.output_start(0, 8)[3] == NUMBERS[:8]  # what a trace shows
    respond.render(got)
    assert target.data == NUMBERS and place.used_blocks == before


def test_the_same_region_may_be_both(files):
    file = files(bytes(AT) + NUMBERS)
    into = {"name": "O", "parameters": {**lies("a"), "shared_memory_offset": AT - 32}}
    respond.render(identity(http(files.table, outputs=[into])))
    assert file.data[AT - 32 : AT - 32 + NBYTES] == NUMBERS


@pytest.mark.parametrize("which", [0, 1])
def test_memory_that_goes_away_before_the_answer_is_written(files, which):
    both = [files(), files(bytes(NBYTES))]
    into = {"name": "O", "parameters": {**lies("b"), "shared_memory_offset": 0}}
    got = identity(http(files.table, outputs=[into]))
    both[which].truncate(8)
    with pytest.raises(TisError, match="has shrunk to 8 bytes"):
        respond.render(got)


def test_an_input_that_is_returned_over_the_socket_is_copied_first(files):
    file = files()
    place = arena()
    request = http(files.table, place=place)
    got = identity(request)
    file.truncate(0)
    assert got.output(0)[3] == NUMBERS and answer_tensors(got)[0].bytes() == NUMBERS
    del request, got
    assert place.used_blocks == 0


def test_one_that_went_away_meanwhile_fails_the_request(files):
    file = files()
    request = http(files.table)
    file.truncate(0)
    with pytest.raises(TisError, match="has shrunk to 0 bytes"):
        identity(request)


def test_a_region_lives_as_long_as_a_request_that_uses_it(files):
    file = files()
    request = http(files.table)
    files.table.remove("a")
    assert is_mapped(file) and input_tensors(request)[0].bytes() == NUMBERS
    del request
    assert not is_mapped(file)


def is_mapped(file) -> bool:
    return file.key in Path("/proc/self/maps").read_text()


def test_a_worker_that_names_other_places_lies(files):
    files()
    request = http(files.table)
    (place,) = aim(request, 3)
    for where, nbytes in ((place - 4, NBYTES), (place + 4, NBYTES), (place + (1 << 48), NBYTES)):
        with pytest.raises(Internal, match="lies outside the request's blocks"):
            answer(request, [(0, FP32, [LARGE], 0, where, nbytes)])


@pytest.mark.parametrize("front", [http, grpc])
def test_who_may_copy_only_so_much_at_once_leaves_a_long_one_to_others(files, front):
    files()
    place, signature = arena(), model()
    files.table.copied_at_once = NBYTES - 1
    for _ in range(2):
        assert flags_of(front(files.table, place=place, signature=signature)) == 16  # nothing is copied
    signature.copies_regions = True
    for _ in range(2):
        with pytest.raises(infer.ReadElsewhere):
            front(files.table, place=place, signature=signature)
    assert place.used_blocks == 0
    files.table.copied_at_once = NBYTES
    assert read_record(front(files.table, place=place, signature=signature))[1][0][3] == NUMBERS
