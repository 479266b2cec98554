"""Requests made of tensors that are there already: what is copied, what is referred to, and what is refused."""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.helpers import FP32, answer, arena, model, read_record, request_for
from tests.wire.helpers import tensor as json_tensor
from tisfast import limits, tuning
from tisfast.errors import BadRequest, Internal, TisError, Unavailable
from tisfast.native.memory import Arena
from tisfast.native.region import SystemRegion
from tisfast.types import BY_CODE
from tisfast.wire.compose import ComposeFields, aim, answer_tensors, compose_request, input_tensors
from tisfast.wire.signature import ModelSignature
from tisfast.wire.tensors import Tensor, in_block, in_region

LARGE = tuning.REFERENCE_BYTES_MIN // 4
INT32, BYTES = 8, 13


def tensor(name: str = "I", count: int = 3, *, of: Arena | None = None, dtype: int = FP32, shape=None) -> Tensor:
    """`count` items of 4 bytes, numbered, 64 bytes into a block of their own."""
    block = (of or arena()).take_block(64 + 4 * count)
    memoryview(block)[64:] = struct.pack(f"<{count}f", *range(count))
    return in_block(name, dtype, (count,) if shape is None else shape, block, 64, 4 * count)


def fields(**given: object) -> ComposeFields:
    made = ComposeFields()
    for name, value in given.items():
        setattr(made, name, value)
    return made


def flags_of(request) -> int:
    return struct.unpack_from("<H", request.record, 6)[0]


def test_small_tensors_are_copied_beside_the_record():
    place = arena()
    request = compose_request(model(("A", "B")), place, [tensor("B", 2), tensor("A", 3)])
    head, tensors, texts = read_record(request)
    assert tensors == [(0, FP32, [3], struct.pack("<3f", 0, 1, 2)), (1, FP32, [2], struct.pack("<2f", 0, 1))]
    assert head == {"flags": 0, "requested": 1, "timeout": 0, "correlation": 0, "batch": 1} and texts == [b"", b"", b""]
    assert place.used_blocks == 1


def test_fields_come_as_a_clients_would():
    given = fields(
        id="seven",
        priority=3,
        timeout_us=9,
        correlation="abc",
        sequence_flags=3,
        parameters=b'{"x":1}',
        requested={"P"},
    )
    request = compose_request(model(outputs=("O", "P")), arena(), [tensor()], given)
    head, _, texts = read_record(request)
    assert (request.id, request.priority, request.timeout_us, request.correlation) == ("seven", 3, 9, "abc")
    assert head == {"flags": 7, "requested": 2, "timeout": 9, "correlation": 0, "batch": 1}
    assert texts == [b"seven", b'{"x":1}', b"abc"]


def test_large_tensors_stay_where_they_are_and_live_as_long_as_the_request():
    theirs, ours = arena(), arena()
    request = compose_request(model(("A", "B")), ours, [tensor("B", LARGE, of=theirs), tensor("A", 3)])
    assert flags_of(request) == 16 and theirs.used_blocks == 1 and ours.used_bytes < 4 * LARGE
    small, large = input_tensors(request)
    assert (small.name, small.nbytes, large.name, large.shape) == ("A", 12, "B", (LARGE,))
    assert large.bytes() == struct.pack(f"<{LARGE}f", *range(LARGE)) and large.file is theirs and small.file is ours
    del request, large, small
    assert theirs.used_blocks == 0


def test_an_input_of_the_models_own_arena_is_foreign_too():
    """Its workers have that arena mapped for all to see, and may write into what they are given."""
    place = arena()
    request = compose_request(model(), place, [tensor(count=LARGE, of=place)])
    assert flags_of(request) == 16


def test_further_large_tensors_than_the_bound_are_copied():
    names = [f"I{i}" for i in range(limits.FOREIGN_INPUTS_MAX + 1)]
    source, place = arena(), arena(1 << 28)
    request = compose_request(model(names), place, [tensor(name, LARGE, of=source) for name in names])
    assert [found.file is place for found in input_tensors(request)].count(True) == 1


def test_a_clients_memory_is_referred_to_unless_its_bytes_were_checked():
    path = f"/dev/shm/tisfast_test_compose_{os.getpid()}"
    with open(path, "wb") as file:
        file.write(struct.pack("<I", 4 * LARGE - 4) + bytes(4 * LARGE - 4))
    try:
        region = SystemRegion("r", "/x", os.open(path, os.O_RDWR), 0, 4 * LARGE)
    finally:
        os.unlink(path)
    numbers = compose_request(model(), arena(), [in_region("I", FP32, (LARGE,), region, 0, 4 * LARGE)])
    text = compose_request(model(dtype="BYTES"), arena(), [in_region("I", BYTES, (1,), region, 0, 4 * LARGE)])
    assert (flags_of(numbers), flags_of(text)) == (16, 0)
    os.ftruncate(region.file.fd, 8)
    with pytest.raises(TisError, match="has shrunk to 8 bytes"):
        input_tensors(numbers)[0].bytes()
    with pytest.raises(BadRequest, match="Invalid offset"):
        in_region("I", FP32, (2,), region, 4 * LARGE, 8)


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ([], r"expected 1 inputs but got 0 inputs for model 'm'. Got input\(s\) \[\], but missing required input\(s\)"),
        ([("I", 3), ("I", 3)], "input 'I' already exists in request"),
        ([("X", 3)], "unexpected inference input 'X' for model 'm'"),
        ([("I", 3, INT32)], "inference input 'I' data-type is 'INT32', but model 'm' expects 'FP32'"),
        ([("I", 3, FP32, (3, 1))], r"unexpected shape for input 'I' for model 'm'. Expected \[-1\], got \[3,1\]"),
        ([("I", 3, FP32, (2,))], "input byte size mismatch for input 'I' for model 'm'. Expected 8, got 12"),
        ([("I", 3, FP32, (-3,))], "contains one or more invalid dimensions"),
        ([("I", 1, FP32, (1,) * 33)], "33 dimensions, 32 is the limit"),
    ],
)
def test_what_does_not_fit_is_refused_as_a_clients_request_is(tensors, match):
    made = [tensor(name, count, dtype=(more + (FP32,))[0], shape=more[1] if len(more) > 1 else None)
            for name, count, *rest in tensors for more in (tuple(rest),)]  # fmt: skip
    place = arena()
    with pytest.raises(BadRequest, match=match):
        compose_request(model(), place, made)
    assert place.used_blocks == 0


def test_batches_are_checked():
    batching = model(("A", "B"), max_batch=4, dims=(2,))
    request = compose_request(batching, arena(), [tensor("A", 6, shape=(3, 2)), tensor("B", 6, shape=(3, 2))])
    assert request.batch == 3
    with pytest.raises(BadRequest, match="input 'B' batch size does not match other inputs for 'm'"):
        compose_request(batching, arena(), [tensor("A", 6, shape=(3, 2)), tensor("B", 4, shape=(2, 2))])
    with pytest.raises(BadRequest, match="inference request batch-size must be <= 4 for 'm'"):
        compose_request(batching, arena(), [tensor("A", 10, shape=(5, 2)), tensor("B", 10, shape=(5, 2))])


def test_unknown_outputs_and_full_arenas_are_told():
    with pytest.raises(BadRequest, match="unexpected inference output 'Z' for model 'm'"):
        compose_request(model(), arena(), [tensor()], fields(requested=["Z"]))
    with pytest.raises(Unavailable, match="no room"):
        compose_request(model(), Arena("small", 4096, 512), [tensor(count=2000)])


def test_an_answer_gives_its_tensors_with_their_memory():
    out = arena()
    got = answer(request_for(model(outputs=("X", "Y")), json_tensor(data=[1, 2, 3])),
                 [(1, FP32, [2], struct.pack("<2f", 5, 6)), (0, FP32, [0], b"")], of=out)  # fmt: skip
    found = answer_tensors(got)
    assert [(each.name, each.dtype, each.shape, each.nbytes) for each in found] == [
        ("Y", FP32, (2,), 8), ("X", FP32, (0,), 0)]  # fmt: skip
    assert found[0].bytes() == struct.pack("<2f", 5, 6) and found[0].file is out
    del got, found[1]
    assert out.used_blocks == 1
    found.clear()
    assert out.used_blocks == 0


def test_an_answer_may_pass_a_foreign_input_on_and_nothing_beside_it():
    theirs, out = arena(), arena()
    request = compose_request(model(), arena(), [tensor(count=LARGE + 1, of=theirs)])
    (place,) = aim(request, 5)
    good = answer(request, [(0, FP32, [LARGE], 0, place + 4, 4 * LARGE)], of=out)
    (passed,) = answer_tensors(good)
    assert passed.file is theirs and passed.bytes() == struct.pack(f"<{LARGE}f", *range(1, LARGE + 1))
    again = compose_request(model(), arena(), [passed.renamed_as("I")])
    del request, good, passed
    assert theirs.used_blocks == 1 and input_tensors(again)[0].bytes()[:4] == struct.pack("<f", 1)


def test_a_copy_of_a_clients_memory_that_was_passed_on_lives_as_long_as_its_tensor():
    own, fd = arena(), os.memfd_create("client")
    os.truncate(fd, 4 * LARGE)
    region = SystemRegion("r", "/r", fd, 0, 4 * LARGE)
    request = compose_request(model(), own, [in_region("I", FP32, (LARGE,), region, 0, 4 * LARGE)])
    (place,) = aim(request, 5)
    (passed,) = answer_tensors(answer(request, [(0, FP32, [LARGE], 0, place, 4 * LARGE)]))
    memoryview(own.take_block(4 * LARGE))[:] = b"\xee" * (4 * LARGE)  # whoever comes next
    assert passed.bytes() == bytes(4 * LARGE)
    del request, passed
    assert own.used_blocks == 0


@pytest.mark.parametrize("moved", [-1, 1, 1 << 48, -(1 << 48), 1 << 47])
def test_places_that_are_not_the_requests_are_lies(moved):
    request = compose_request(model(), arena(), [tensor(count=LARGE)])
    (place,) = aim(request, 5)
    with pytest.raises(Internal, match="lies outside the request's blocks"):
        answer(request, [(0, FP32, [LARGE], 0, place + moved, 4 * LARGE)])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(BY_CODE)), st.lists(st.integers(0, 3), max_size=3)), min_size=1, max_size=4
    ),
    st.data(),
)
def test_what_is_composed_reads_as_what_was_given(made, data):
    names = [f"I{i}" for i in range(len(made))]
    tensors = []
    for name, (dtype, shape) in zip(names, made, strict=True):
        count = 1
        for dim in shape:
            count *= dim
        nbytes = count * (BY_CODE[dtype].size or 4)
        block = arena().take_block(nbytes + 1)
        memoryview(block)[:nbytes] = data.draw(st.binary(min_size=nbytes, max_size=nbytes))
        tensors.append(in_block(name, dtype, tuple(shape), block, 0, nbytes))
    shapes = {name: (code, [-1] * len(shape)) for name, (code, shape) in zip(names, made, strict=True)}
    signature = ModelSignature("m", "1", 0, False, [(n, c, d, False, False) for n, (c, d) in shapes.items()], [])
    request = compose_request(signature, arena(), data.draw(st.permutations(tensors)))
    assert [(t.name, t.dtype, t.shape, t.bytes()) for t in input_tensors(request)] == [
        (t.name, t.dtype, t.shape, t.bytes()) for t in tensors]  # fmt: skip
