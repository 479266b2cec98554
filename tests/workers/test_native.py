"""Memory as the hot path reads and writes it: compiled, or by struct and slices, and the same either way."""

from __future__ import annotations

import ctypes
import mmap
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tisfast_worker import dtypes, native
from tisfast_worker.tensor import InputLayout

NBYTES = 4096
BOUNDS = {"B": (0, 255), "H": (0, 2**16 - 1), "I": (0, 2**32 - 1), "Q": (0, 2**64 - 1), "q": (-(2**63), 2**63 - 1)}
values_of = st.lists(
    st.sampled_from("BHIQq").flatmap(lambda code: st.tuples(st.just(code), st.integers(*BOUNDS[code]))), max_size=20
)
places = st.integers(-10, NBYTES + 10)
NUMERIC = [code for code, entry in dtypes.TYPES.items() if entry[3] and code < dtypes.BYTES]


def new_memory() -> mmap.mmap:
    memory = mmap.mmap(-1, NBYTES)
    memory[:] = bytes(i % 251 for i in range(NBYTES))
    return memory


@given(values_of, places)
def test_fields_are_those_of_struct(pairs, at):
    layout = struct.Struct("<" + "".join(code for code, _ in pairs))
    values = tuple(value for _, value in pairs)
    memory = new_memory()
    fields = native.RawMemory(memory).fields(layout)
    if not 0 <= at <= NBYTES - layout.size:
        before = memory[:]
        for use in (lambda: fields.read(at), lambda: fields.write(at, values)):
            if at >= 0:  # struct counts those from the end, and nobody here does
                with pytest.raises(struct.error):
                    use()
        assert at < 0 or memory[:] == before
        return
    expected = bytearray(memory[:])
    layout.pack_into(expected, at, *values)
    fields.write(at, values)
    assert memory[:] == expected
    assert fields.read(at) == values == layout.unpack_from(memory, at)


@pytest.mark.parametrize("values", [(1,), (1, 2, 3), ()])
def test_fields_want_all_their_values(values):
    memory = new_memory()
    before = memory[:]
    with pytest.raises(struct.error):
        native.RawMemory(memory).fields(struct.Struct("<IQ")).write(0, values)
    assert memory[:] == before


@pytest.mark.parametrize(("code", "value"), [("B", 256), ("H", -1), ("I", 2**32), ("Q", 2**64), ("q", 2**63)])
def test_a_value_that_does_not_fit_its_field_is_refused(code, value):
    memory = new_memory()
    with pytest.raises((struct.error, OverflowError)):
        native.RawMemory(memory).fields(struct.Struct("<" + code)).write(8, (value,))


def test_fields_may_be_counted_in_their_format():
    memory = new_memory()
    fields = native.RawMemory(memory).fields(struct.Struct("<2H3Q"))
    fields.write(3, (1, 2, 3, 4, 2**64 - 1))
    assert fields.read(3) == (1, 2, 3, 4, 2**64 - 1)


@given(st.integers(0, NBYTES + 10), st.integers(0, NBYTES + 10))
def test_what_is_read_is_cut_where_the_memory_ends(at, nbytes):
    memory = new_memory()
    assert native.RawMemory(memory).read(at, nbytes) == memory[at : at + nbytes]


@given(st.integers(0, NBYTES + 10), st.binary(max_size=64))
def test_what_is_written_lies_there_or_is_refused(at, raw):
    memory = new_memory()
    expected = bytearray(memory[:])
    if at + len(raw) <= NBYTES:
        expected[at : at + len(raw)] = raw
        native.RawMemory(memory).write(at, raw)
    elif raw:
        with pytest.raises(IndexError):
            native.RawMemory(memory).write(at, raw)
    assert memory[:] == expected


def test_the_memory_stays_as_long_as_its_fields():
    fields = native.RawMemory(new_memory()).fields(struct.Struct("<I"))
    assert fields.read(0) == (0x03020100,)


@given(st.integers(0, 2**64 - 1))
def test_a_handle_names_its_place(block):
    assert native.block_offset(block) == (block % 2**40) * 512


@given(
    code=st.sampled_from(NUMERIC),
    shape=st.lists(st.one_of(st.integers(0, 4), st.integers(0, 2**40)), max_size=10).map(tuple),
    offset=st.one_of(st.integers(0, 64), st.integers(-8, NBYTES + 8)),
)
def test_an_inputs_array_is_numpys_own(code, shape, offset):
    lease = (ctypes.c_char * NBYTES)(*(bytes([i % 251]) for i in range(NBYTES)))
    layout = InputLayout("x", code, shape)
    layout.bind()
    made = _outcome(layout.array, shape, layout, lease, offset)
    expected = _outcome(np.ndarray, shape, layout, lease, offset)
    if isinstance(expected, type):
        assert made is expected
        return
    assert type(made) is np.ndarray and made.base is lease
    assert (made.shape, made.strides, made.dtype) == (expected.shape, expected.strides, expected.dtype)
    assert made.__array_interface__ == expected.__array_interface__ and str(made.flags) == str(expected.flags)
    assert made.tobytes() == expected.tobytes()


def _outcome(function, shape, layout, lease, offset):
    """An array, or the class of what it raised."""
    try:
        return function(shape, layout.dtype, lease, offset)
    except (TypeError, ValueError) as error:
        return type(error)


def test_an_inputs_array_keeps_its_memory():
    lease = (ctypes.c_char * 64)()
    layout = InputLayout("x", 11, (2, 3))
    layout.bind()
    array = layout.array(layout.shape, layout.dtype, lease, 8)
    array[:] = 1.5
    del lease
    assert array.sum() == 9 and array.flags.writeable and not array.flags.owndata


def test_the_guards_have_one_home():
    """They have state, and csrc is linked twice: what adds one must not be of another copy than what asks after it."""
    guards = {name for name in native._SIGNATURES if name.startswith("tf_guard_")}
    compiled = guards & set(dir(native.direct))
    assert len(guards) == 4 and compiled in (guards, set())
