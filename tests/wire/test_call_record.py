"""Records of calls from model to model: read as workers write them, or refused; replies as workers read them."""

from __future__ import annotations

import contextlib
import os
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire.call_record_helpers import NOBODY, WAITS, named_tensor, padded, read_reply, record
from tests.wire.helpers import arena, strings
from tisfast import limits
from tisfast.errors import Internal, TisError, Unavailable
from tisfast.native.memory import Arena
from tisfast.native.region import SystemRegion
from tisfast.types import BY_CODE
from tisfast.wire import call_record
from tisfast.wire.tensors import in_block, in_region

FP32, INT64, BYTES = 11, 9, 13
WHERE = (1, 7, 64, 16)
OWN = [("I", (4,), WHERE)]
HEAD_BYTES = 56
NO_TEXT = " is not UTF-8: 'utf-8' codec can't decode byte {} in position 0: invalid start byte"
LIED = "a call that an instance made cannot be read: "


def parts(found):
    plan = found.plan
    tensors = [(plan.names[i], plan.shapes[i], found.place(i), plan.dtypes[i]) for i in range(plan.count)]
    return plan.model, tensors


def refused(data):
    with pytest.raises(Internal) as caught:
        call_record.read(data)
    assert caught.value.message.startswith(LIED)
    return caught.value.message.removeprefix(LIED)


# ---- calls


def test_a_call_says_what_is_asked_of_whom():
    found = call_record.read(
        record(
            "other", [("I", (4,), WHERE), ("S", (2, 1), (2, 9, 1 << 48, 30), BYTES)], version=3, requested=("X", "Y"),
            id="seven", parameters=b'{"a":1}', correlation=5, timeout=77, parent=12, trace=13, flags=WAITS | 3,
        )
    )  # fmt: skip
    assert parts(found) == ("other", [("I", (4,), WHERE, FP32), ("S", (2, 1), (2, 9, 1 << 48, 30), BYTES)])
    assert (found.plan.version, found.plan.requested) == ("3", ["X", "Y"])
    assert (found.id, found.parameters, found.correlation) == ("seven", b'{"a":1}', 5)
    assert (found.timeout_us, found.parent, found.trace, found.flags) == (77, 12, 13, 19)


def test_what_a_call_does_not_say():
    found = call_record.read(record("m", []))
    assert parts(found) == ("m", [])
    assert (found.plan.version, found.plan.requested, found.id, found.parameters) == ("", None, "", b"")
    assert (found.correlation, found.timeout_us, found.parent, found.trace) == (0, 0, 0, NOBODY)


def test_a_sequence_id_is_a_number_or_a_text():
    assert call_record.read(record("m", OWN, correlation=(1 << 64) - 1)).correlation == (1 << 64) - 1
    assert call_record.read(record("m", OWN, correlation="s\N{SNOWMAN}")).correlation == "s\N{SNOWMAN}"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
U64 = st.integers(0, (1 << 64) - 1)
TENSORS = st.tuples(
    TEXTS,
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5).map(tuple),
    st.tuples(U64, U64, U64, U64),
    st.integers(0, 255),
)


FIELDS = st.fixed_dictionaries(
    {
        "version": st.integers(0, 2**63 - 1),
        "requested": st.lists(TEXTS, max_size=3).map(tuple),
        "id": TEXTS,
        "parameters": st.binary(max_size=20),
        "correlation": U64 | TEXTS.filter(bool),
        "timeout": U64,
    }
)


@given(TEXTS, st.lists(TENSORS, max_size=4), FIELDS)
def test_any_call_is_read_as_it_was_written(model, tensors, fields):
    found = call_record.read(record(model, tensors, **fields))
    assert parts(found) == (model, tensors)
    assert (found.plan.version, found.plan.requested) == (str(fields["version"]), list(fields["requested"]) or None)
    assert (found.id, found.parameters) == (fields["id"], fields["parameters"])
    assert (found.correlation, found.timeout_us) == (fields["correlation"], fields["timeout"])


@pytest.mark.parametrize("number", [-1, 1, 1 << 20])
def test_a_call_has_no_further_inputs(number):
    with pytest.raises(IndexError):
        call_record.read(record("m", OWN)).place(number)


def changed(data, at, form, value):
    out = bytearray(data)
    struct.pack_into("<" + form, out, at, value)
    return bytes(out)


WHOLE = record("other", OWN, requested=("X",), id="seven", parameters=b"{}", correlation="abc")
SIGNATURE_BYTES = len(padded(struct.pack("<HHIq", 0, 0, 0, 0) + b"other" + b"\1\0X") + named_tensor("I", (4,)))
TENSOR_AT = HEAD_BYTES + SIGNATURE_BYTES - len(named_tensor("I", (4,)))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "its head needs 56 bytes, 0 are left"),
        (WHOLE[:55], "its head needs 56 bytes, 55 are left"),
        (changed(WHOLE, 0, "I", 1 << 31), f"its signature needs {1 << 31} bytes, {len(WHOLE) - HEAD_BYTES} are left"),
        (changed(WHOLE, 0, "I", 15), "the head of its signature needs 16 bytes, 15 are left"),
        (changed(WHOLE, 4, "H", 2), "it says 2 inputs and lists 1"),
        (changed(WHOLE, 4, "H", 0), "it says 0 inputs and lists 1"),
        (changed(WHOLE, HEAD_BYTES, "H", 9999), f"the model's name needs 9999 bytes, {SIGNATURE_BYTES - 16} are left"),
        (changed(WHOLE, HEAD_BYTES + 16, "B", 0xFF), "the model's name" + NO_TEXT.format("0xff")),
        (changed(WHOLE, HEAD_BYTES + 21, "H", 99), f"an output's name needs 99 bytes, {SIGNATURE_BYTES - 23} are left"),
        (changed(WHOLE, HEAD_BYTES + 23, "B", 0x80), "an output's name" + NO_TEXT.format("0x80")),
        (changed(WHOLE, TENSOR_AT + 1, "B", 33), "an input has 33 dimensions, 32 is the limit"),
        (changed(WHOLE, TENSOR_AT + 1, "B", 32), "an input's shape needs 256 bytes, 16 are left"),
        (changed(WHOLE, TENSOR_AT + 2, "H", 9), "an input's name needs 9 bytes, 8 are left"),
        (changed(WHOLE, TENSOR_AT + 16, "B", 0xC0), "an input's name" + NO_TEXT.format("0xc0")),
        (WHOLE[:HEAD_BYTES + SIGNATURE_BYTES + 31], "the places of its inputs needs 32 bytes, 31 are left"),
        (changed(WHOLE, 40, "I", 4000), "its request id needs 4000 bytes, 10 are left"),
        (changed(WHOLE, 44, "I", 4000), "its parameters needs 4000 bytes, 5 are left"),
        (changed(WHOLE, 48, "I", 4), "its correlation id needs 4 bytes, 3 are left"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_named(data, text):
    assert refused(data) == text


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_a_record_that_ends_early_is_refused(cut):
    assert refused(WHOLE[:cut])


def test_a_record_that_is_too_long_is_not_looked_at():
    most = limits.CALL_RECORD_BYTES_MAX
    assert refused(bytes(most + 1)) == f"its record has {most + 1} bytes, {most} is the limit"


@given(st.binary(max_size=200) | st.binary(max_size=80).map(lambda rest: WHOLE[:HEAD_BYTES] + rest))
@example(WHOLE)
def test_any_bytes_are_a_call_or_a_lie(data):
    with contextlib.suppress(Internal):
        parts(call_record.read(data))


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_damage_is_a_call_or_a_lie(changes):
    data = bytearray(WHOLE)
    for at, value in changes:
        data[at] = value
    with contextlib.suppress(Internal):
        parts(call_record.read(bytes(data)))


# ---- replies


def tensor(name, data, shape=None, dtype=FP32, of=None):
    block = (of or arena(1 << 20)).take_block(64 + len(data))
    memoryview(block)[64:] = data
    return in_block(name, dtype, (len(data) // 4,) if shape is None else shape, block, 64, len(data))


def replied(tensors, shares, parameters=b"", of=None):
    """What the worker reads: outputs as (name, type, shape, place or bytes), the parameters, and the block."""
    block, record_bytes = call_record.reply(of or arena(), tensors, shares, parameters)
    outputs, given_parameters = read_reply(bytes(memoryview(block)[:record_bytes]))
    found = []
    for (name, dtype, shape, place, nbytes), share in zip(outputs, shares, strict=True):
        if share:
            found.append((name, dtype, shape, place, nbytes))
            continue
        at = place - block.offset
        assert at % 64 == 0 and at + nbytes <= block.nbytes
        found.append((name, dtype, shape, bytes(memoryview(block)[at : at + nbytes])))
    return found, given_parameters, block


F2 = struct.pack("<2f", 1, 2)


def test_small_outputs_come_with_their_bytes():
    text = strings(b"a", b"bc")
    given_ = [tensor("O", F2), tensor("\N{SNOWMAN}", text, (2, 1), BYTES), tensor("E", b"", (0, 3), INT64)]
    found, parameters, _ = replied(given_, [0, 0, 0], b'{"a":1}')
    assert found == [("O", FP32, [2], F2), ("\N{SNOWMAN}", BYTES, [2, 1], text), ("E", INT64, [0, 3], b"")]
    assert parameters == b'{"a":1}'


def test_outputs_whose_memory_the_instance_knows_are_named_by_its_share():
    one, two = tensor("O", F2), tensor("P", bytes(64))
    found, _, block = replied([one, two], [0, 5])
    assert found == [("O", FP32, [2], F2), ("P", FP32, [16], 5 << 48 | two.offset, 64)]
    assert block.nbytes < 256  # its bytes are not in it


def test_a_reply_may_have_nothing():
    assert replied([], [])[:2] == ([], b"")


OUTPUTS = st.tuples(
    st.text(st.characters(codec="utf-8"), max_size=9),
    st.binary(max_size=90),
    st.lists(st.integers(0, 2**63 - 1), max_size=4),
    st.sampled_from(sorted(BY_CODE)),
    st.integers(0, 2**16 - 1) | st.just(0),
)


@given(st.lists(OUTPUTS, max_size=5), st.binary(max_size=70))
def test_any_reply_is_read_as_it_was_given(outputs, parameters):
    place = arena(1 << 20)
    tensors = [tensor(name, data, tuple(shape), dtype) for name, data, shape, dtype, _ in outputs]
    shares = [share for *_, share in outputs]
    found, text, block = replied(tensors, shares, parameters, place)
    assert text == parameters
    for got, (name, data, shape, dtype, share), made in zip(found, outputs, tensors, strict=True):
        where = (share << 48 | made.offset, len(data)) if share else (data,)
        assert got == (name, dtype, shape, *where)
    del block
    assert place.used_blocks == 0


def test_a_full_arena_is_told():
    with pytest.raises(Unavailable, match="no room"):
        call_record.reply(Arena("small", 4096, 512), [tensor("O", bytes(4096))], [0])


def test_memory_of_a_client_that_has_gone_fails_the_reply_and_leaves_nothing():
    fd = os.memfd_create("client")
    os.truncate(fd, 4096)
    region = SystemRegion("r", "/r", fd, 0, 4096)
    there, place = in_region("O", FP32, (4,), region, 16, 16), arena(1 << 20)
    assert replied([there], [0], of=place)[0] == [("O", FP32, [4], bytes(16))]
    os.ftruncate(region.file.fd, 0)
    with pytest.raises(TisError, match="has shrunk to 0 bytes"):
        call_record.reply(place, [there], [0])
    assert place.used_blocks == 0
