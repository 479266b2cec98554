"""Tensors in regions: read at every use, written where the client wants them, refused where they do not fit."""

from __future__ import annotations

import ctypes
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.helpers import LANE
from tests.wire.helpers import FP32, answer, arena, binary, body, model, read_record, strings, tensor
from tisfast.errors import BadRequest, Internal, NotFound, TisError
from tisfast.executor import Lane
from tisfast.native.region import DeviceRegion, Regions
from tisfast.wire import compose, infer, outputs, respond

UNPARSED = (
    r"^Unable to parse 'shared_memory_{}': attempt to access JSON non-unsigned-integer as unsigned-integer \(region "
    r"'a': it is {}, not a whole number from 0 to 18446744073709551615\)$"
)

F3 = struct.pack("<3f", 1, 2.5, -3)


class Memory:
    """A client's memory: cuda_faces.DeviceMemory over a bytearray."""

    def __init__(self, data: bytes) -> None:
        self.nbytes = len(data)
        self.buffer = ctypes.create_string_buffer(data, len(data))
        self._address, self._move = ctypes.addressof(self.buffer), ctypes.memmove

    def lane(self, nbytes: int) -> Lane:
        return LANE

    def to_host(self, offset: int, address: int, nbytes: int) -> None:
        self._move(address, self._address + offset, nbytes)

    def from_host(self, offset: int, address: int, nbytes: int) -> None:
        self._move(self._address + offset, address, nbytes)

    def from_device(self, offset: int, source: Memory, start: int, nbytes: int) -> None:
        self._move(self._address + offset, source._address + start, nbytes)


def regions(**memories):
    table = Regions()
    for name, data in memories.items():
        memory = Memory(data)
        table.add(DeviceRegion(name, memory, 0, bytes(64), memory.nbytes))
    return table


def shared(region="a", nbytes=12, offset=None, name="I", **fields):
    parameters = {"shared_memory_region": region, "shared_memory_byte_size": nbytes}
    if offset is not None:
        parameters["shared_memory_offset"] = offset
    return tensor(name, parameters=parameters, **fields)


def into(region="o", nbytes=12, name="O", **parameters):
    return {
        "name": name,
        "parameters": {"shared_memory_region": region, "shared_memory_byte_size": nbytes, **parameters},
    }


def parse(table, *inputs, signature=None, place=None, tail=b"", **fields):
    text, n = body(*inputs, tail=tail, **fields)
    request = infer.parse(signature or model(), place or arena(), text, n if tail else -1, regions=table)
    request.copy_now()
    return request


def test_an_input_is_copied_from_its_region_at_each_use():
    table, signature = regions(a=b"....." + F3), model()
    for values in (F3, struct.pack("<3f", 7, 8, 9)):
        table.get("a").store(5, values)
        request = parse(table, shared(offset=5), signature=signature)
        assert read_record(request)[1] == [(0, FP32, [3], values)]


def with_place(**signature_fields):
    """(request to a model on GPU 0 for output X in 12 bytes at 5 of a region, the region's table)."""
    table, signature = regions(a=F3, o=bytes(20)), model(outputs=("O", "X"))
    signature.device_outputs = 0
    for name, value in signature_fields.items():
        setattr(signature, name, value)
    fields = {"id": "seven", "outputs": [into(name="X", shared_memory_offset=5)], "parameters": {"mine": "yes"}}
    return parse(table, shared(), signature=signature, **fields), table


def test_a_worker_is_told_where_outputs_on_its_gpu_go():
    request, _ = with_place()
    flags, id_bytes, parameters_bytes = struct.unpack_from("<6xH24xII", request.record)
    assert (flags, id_bytes) == (16 | 64, 5)
    texts = 48 + 16 + 16
    assert request.record[texts:][: 5 + parameters_bytes] == b'seven{"mine":"yes"}'
    end = texts + 5 + parameters_bytes
    assert struct.unpack("<4Q", request.record[end + -end % 8 :]) == (1, 1, 0, 12)
    assert compose.aim(request, 3) == [3 << 48 | 5]
    assert struct.unpack("<4Q", request.record[end + -end % 8 :]) == (1, 1, 3 << 48 | 5, 12)


@pytest.mark.parametrize("fields", [{"device_outputs": 1}, {"device_outputs": -1}, {"copies_devices": True}])
def test_other_models_are_told_of_no_places(fields):
    request, _ = with_place(**fields)
    assert struct.unpack_from("<6xH", request.record) == (0,)
    assert compose.aim(request, 3) == []


def test_what_the_worker_has_written_there_is_not_copied_again():
    request, table = with_place()
    (place,) = compose.aim(request, 3)
    table.get("o").store(5, F3)
    given = answer(request, [(1, FP32, [3], 0, place, 12)])
    assert not outputs.waits_for_threads(given)
    outputs.write_regions(given)
    assert table.get("o").fetch(0, 20) == bytes(5) + F3 + bytes(3)
    with pytest.raises(Internal, match="output 'X' at arena 0, .* lies outside the request's blocks"):
        answer(request, [(1, FP32, [3], 0, place + 4, 12)])


def test_a_remembered_head_looks_its_region_up_again():
    table, signature = regions(a=F3), model()
    for _ in range(3):
        parse(table, shared(), signature=signature)
    table.remove("a")
    with pytest.raises(NotFound, match="Unable to find shared memory region: 'a'"):
        parse(table, shared(), signature=signature)
    table.add(DeviceRegion("a", Memory(F3[:8]), 0, bytes(64), 8))
    text = r"^Invalid offset \+ byte size for shared memory region: 'a' \(input 'I': offset 0 \+ byte_size 12, the"
    with pytest.raises(BadRequest, match=text):
        parse(table, shared(), signature=signature)


def test_a_remembered_head_looks_the_region_of_an_output_up_again():
    table, signature = regions(a=F3, o=bytes(32)), model()
    for _ in range(3):
        parse(table, shared(), signature=signature, outputs=[into(nbytes=32)])
    table.remove("o")
    table.add(DeviceRegion("o", Memory(bytes(8)), 0, bytes(64), 8))
    text = r"^Invalid offset \+ byte size for shared memory region: 'o' \(output 'O': offset 0 \+ byte_size 32, the"
    with pytest.raises(BadRequest, match=text):
        parse(table, shared(), signature=signature, outputs=[into(nbytes=32)])


def test_regions_json_and_binary_may_be_mixed():
    signature = model(inputs=("A", "B", "C"))
    inputs = (tensor("A", data=[4, 5, 6]), shared(name="B"), binary("C"))
    request = parse(regions(a=F3), *inputs, signature=signature, tail=F3[::-1])
    assert [t[3] for t in read_record(request)[1]] == [struct.pack("<3f", 4, 5, 6), F3, F3[::-1]]


def test_strings_in_a_region_are_counted():
    data = strings(b"a", b"", b"xyz")
    table, signature = regions(a=data), model(dtype="BYTES")
    request = parse(table, shared(nbytes=len(data), datatype="BYTES"), signature=signature)
    assert read_record(request)[1][0][3] == data
    with pytest.raises(BadRequest, match="expected 3 string elements for inference input 'I'"):
        parse(table, shared(nbytes=9, datatype="BYTES"), signature=signature)
    table.get("a").store(0, b"\xff\xff\xff\xff")
    with pytest.raises(BadRequest, match="incomplete string data|expected 3 string elements"):
        parse(table, shared(nbytes=len(data), datatype="BYTES"), signature=signature)


@pytest.mark.parametrize(
    ("entry", "error", "text"),
    [
        (shared("b"), NotFound, "Unable to find shared memory region: 'b'"),
        (shared("b", shape=[9, 9]), NotFound, "Unable to find shared memory region: 'b'"),
        (
            shared(offset=12),
            BadRequest,
            r"^Invalid offset for shared memory region: 'a' \(input 'I': offset 12, the region has 12 bytes\)$",
        ),
        (
            shared(offset=1),
            BadRequest,
            r"^Invalid offset \+ byte size for shared memory region: 'a' \(input 'I': offset 1 \+ byte_size 12, the",
        ),
        (shared(offset=1, name="no such"), BadRequest, r"region: 'a' \(input 'no such': offset 1 \+ byte_size 12, the"),
        (shared(nbytes=2**64 - 1, offset=8), BadRequest, r"^Integer overflow detected.* for region 'a' \(input 'I'\)$"),
        (shared(nbytes=8), BadRequest, "input byte size mismatch for input 'I' for model 'm'. Expected 12, got 8"),
        (shared(nbytes=0), BadRequest, "Expected 12, got 0$"),
        (
            tensor(parameters={"shared_memory_region": "a"}),
            BadRequest,
            r"Expected 12, got 0 \(the request says no 'shared_memory_byte_size' for it\)$",
        ),
        (shared(nbytes=-1), Internal, UNPARSED.format("byte_size", "-1")),
        (shared(offset=-1), Internal, UNPARSED.format("offset", "-1")),
        (shared(offset="x"), Internal, UNPARSED.format("offset", "'x'")),
        (shared(offset=True), Internal, UNPARSED.format("offset", "true")),
        (shared(7), Internal, "Unable to parse 'shared_memory_region'"),
        (shared(data=[1]), BadRequest, "But set 'data' 'shared_memory_region'"),
        (tensor(parameters={"shared_memory_byte_size": 12}), BadRequest, "But no field is set"),
    ],
)
def test_what_an_input_says_wrong(entry, error, text):
    place = arena()
    with pytest.raises(error, match=text):
        parse(regions(a=F3), entry, place=place)
    assert place.used_blocks == 0


@pytest.mark.parametrize(
    ("entry", "error", "text"),
    [
        (into("b"), NotFound, "Unable to find shared memory region: 'b'"),
        (
            into(shared_memory_offset=32),
            BadRequest,
            r"^Invalid offset for shared memory region: 'o' \(output 'O': offset 32, the region has 32 bytes\)$",
        ),
        (into(shared_memory_offset=-1), Internal, UNPARSED.format("offset", "-1").replace("'a'", "'o'")),
        (
            into(nbytes=33),
            BadRequest,
            r"^Invalid offset \+ byte size for shared memory region: 'o' \(output 'O': offset 0 \+ byte_size 33, the",
        ),
        (into(classification=1), BadRequest, "can't set both 'shared_memory_region' and 'classification'"),
        (into(binary_data=True), BadRequest, "can't set both 'shared_memory_region' and 'binary_data'"),
        (into(binary_data=5), Internal, "Unable to set 'binary_data'"),
        (into(5), Internal, "Unable to parse 'shared_memory_region'"),
    ],
)
def test_what_an_output_says_wrong(entry, error, text):
    with pytest.raises(error, match=text):
        parse(regions(a=F3, o=bytes(32)), shared(), outputs=[entry])


def test_an_output_goes_into_its_region_and_the_answer_names_type_and_shape_only():
    table = regions(a=F3, o=bytes(20))
    request = parse(table, shared(), outputs=[into(shared_memory_offset=4, binary_data=False)])
    text, tail = respond.render(answer(request, [(0, FP32, [3], F3)]))
    assert json.loads(text)["outputs"] == [{"name": "O", "datatype": "FP32", "shape": [3]}]
    assert (tail, table.get("o").fetch(0, 20)) == (b"", bytes(4) + F3 + bytes(4))


def test_outputs_in_a_region_in_binary_and_in_json_side_by_side():
    table, signature = regions(a=F3, o=bytes(12)), model(outputs=("X", "Y", "Z"))
    outputs = [into(name="Y"), {"name": "Z", "parameters": {"binary_data": True}}, {"name": "X"}]
    request = parse(table, shared(), signature=signature, outputs=outputs)
    text, tail = respond.render(answer(request, [(i, FP32, [1], bytes([i]) * 4) for i in range(3)]))
    assert [set(each) - {"name", "datatype", "shape"} for each in json.loads(text)["outputs"]] == [
        {"data"},
        set(),
        {"parameters"},
    ]
    assert (tail, table.get("o").fetch(0, 8)) == (b"\2\2\2\2", b"\1\1\1\1" + bytes(4))


def test_an_output_larger_than_announced_is_not_written():
    table = regions(a=F3, o=bytes(32))
    request = parse(table, shared(), outputs=[into(nbytes=8)])
    with pytest.raises(Internal) as caught:
        respond.render(answer(request, [(0, FP32, [3], F3)]))
    assert str(caught.value) == (
        "shared memory size specified with the request for output 'O' (8 bytes) should be at least 12 bytes to hold "
        "the results, in region 'o'"
    )
    assert table.get("o").fetch(0, 32) == bytes(32)


@pytest.mark.parametrize(
    ("said", "told"),
    [({"shared_memory_byte_size": 0}, ""), ({}, " (the request says no 'shared_memory_byte_size' for it)")],
)
def test_an_output_whose_request_says_no_size_is_told_so(said, told):
    table = regions(a=F3, o=bytes(32))
    output = {"name": "O", "parameters": {"shared_memory_region": "o", **said}}
    request = parse(table, shared(), outputs=[output])
    with pytest.raises(Internal) as caught:
        respond.render(answer(request, [(0, FP32, [3], F3)]))
    assert str(caught.value) == (
        "shared memory size specified with the request for output 'O' (0 bytes) should be at least 12 bytes to hold "
        f"the results, in region 'o'{told}"
    )


def test_a_region_unregistered_meanwhile_still_takes_the_output():
    table = regions(a=F3, o=bytes(12))
    request = parse(table, shared(), outputs=[into()])
    target = table.get("o")
    table.remove("o")
    respond.render(answer(request, [(0, FP32, [3], F3)]))
    assert target.fetch(0, 12) == F3


def test_two_requests_of_one_head_write_to_the_region_that_had_the_name_when_they_came():
    table, signature = regions(a=F3, o=bytes(12)), model()
    first = parse(table, shared(), signature=signature, outputs=[into()])
    old = table.get("o")
    table.remove("o")
    table.add(DeviceRegion("o", Memory(bytes(12)), 0, bytes(64), 12))
    second = parse(table, shared(), signature=signature, outputs=[into()])
    respond.render(answer(second, [(0, FP32, [3], F3)]))
    assert (old.fetch(0, 12), table.get("o").fetch(0, 12)) == (bytes(12), F3)
    respond.render(answer(first, [(0, FP32, [3], F3)]))
    assert old.fetch(0, 12) == F3


WORDS = st.one_of(st.integers(-1, 20), st.integers(2**63 - 2, 2**64), st.text(max_size=2), st.none(), st.booleans())


@given(st.sampled_from(["a", "b", ""]), WORDS, WORDS, st.lists(st.integers(0, 2**63), max_size=3))
def test_whatever_a_request_says_of_a_region_is_served_or_refused(region, nbytes, offset, shape):
    place = arena()
    try:
        request = parse(regions(a=F3), shared(region, nbytes, offset, shape=shape), place=place)
    except TisError:
        assert place.used_blocks == 0
        return
    ((_, _, got, data),) = read_record(request)[1]
    assert data == F3[offset or 0 :][: 4 * got[0]]
