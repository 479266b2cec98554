"""Tensors in a client's buffers: any buffer that numpy makes, checked whole, never copied."""

from __future__ import annotations

import array
import gc
import math
import mmap
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tests.wire.helpers import strings
from tisfast.errors import BadRequest
from tisfast.types import BY_WIRE
from tisfast.wire.buffer_tensor import BufferTensor, pack_strings

KNOWN = ", ".join(BY_WIRE)
NUMPY = {name: kind.numpy for name, kind in BY_WIRE.items() if kind.numpy and name != "BYTES"}
TOP = (1 << 63) - 1
NO_STRINGS = "tensor 'I' of BYTES: its {} bytes are no sequence of elements, each behind its length"


def message_of(*arguments):
    with pytest.raises(BadRequest) as caught:
        BufferTensor(*arguments)
    return caught.value.message


@given(st.sampled_from(sorted(NUMPY)).flatmap(
    lambda name: st.tuples(st.just(name), arrays(NUMPY[name], array_shapes(min_dims=0, min_side=0, max_side=4)))
))  # fmt: skip
def test_a_numpy_array_is_its_bytes(pair):
    datatype, values = pair
    tensor = BufferTensor("I", datatype, values.shape, values)
    assert (tensor.name, tensor.datatype, tensor.shape, tensor.nbytes) == ("I", datatype, values.shape, values.nbytes)
    assert (tensor.region, tensor.offset) == (None, 0)
    back = np.frombuffer(tensor.buffer(), NUMPY[datatype]).reshape(tensor.shape)
    assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "data",
    [b"abcdefgh", bytearray(b"abcdefgh"), memoryview(b"abcdefgh"), memoryview(b"abcdefgh").cast("B", (2, 4)),
     array.array("B", b"abcdefgh"), array.array("d", [1.5]), np.frombuffer(b"abcdefgh", ">u4"),
     memoryview(b"xabcdefgh")[1:]],
    ids=lambda data: type(data).__name__,
)  # fmt: skip
def test_any_contiguous_buffer_will_do(data):
    tensor = BufferTensor("I", "FP32", [2], data)
    assert bytes(tensor.buffer()) == bytes(memoryview(data).cast("B"))


def test_a_mapped_file_will_do():
    with mmap.mmap(-1, 4096) as mapped:
        mapped[:4] = b"abcd"
        tensor = BufferTensor("I", "UINT8", [4096], mapped)
        assert bytes(tensor.buffer())[:4] == b"abcd"
        del tensor


def test_the_buffer_is_not_copied_and_cannot_be_written_through_it():
    data = bytearray(8)
    view = BufferTensor("I", "FP32", [2], data).buffer()
    data[0] = 7
    assert view[0] == 7 and view.readonly and (view.format, view.shape) == ("B", (8,))
    with pytest.raises(TypeError):
        view[0] = 1


def test_the_buffer_lives_as_long_as_the_tensor():
    data = np.zeros(2, np.float32)
    gone = weakref.ref(data)
    tensor = BufferTensor("I", "FP32", [2], data)
    del data
    gc.collect()
    assert gone() is not None
    del tensor
    gc.collect()
    assert gone() is None


def test_a_buffer_that_is_lent_cannot_grow():
    data = bytearray(8)
    tensor = BufferTensor("I", "FP32", [2], data)
    with pytest.raises(BufferError):
        data.extend(b"x")
    del tensor
    data.extend(b"x")


@pytest.mark.parametrize("shape", [[], [0], [0, 3], [2, 0, 5], [TOP, 0, TOP], [1] * 32])
def test_shapes_of_few_elements(shape):
    nbytes = 4 * math.prod(shape)
    tensor = BufferTensor("I", "FP32", shape, bytes(nbytes))
    assert (tensor.shape, tensor.nbytes, len(tensor.buffer())) == (tuple(shape), nbytes, nbytes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("I", "FP31", [1], bytes(4)), f"tensor 'I' has datatype 'FP31', known are {KNOWN}"),
        (("I", "fp32", [1], bytes(4)), f"tensor 'I' has datatype 'fp32', known are {KNOWN}"),
        (("I", "", [1], bytes(4)), f"tensor 'I' has datatype '', known are {KNOWN}"),
        (("I", "FP32", [1] * 33, bytes(4)), "tensor 'I' has 33 dimensions, 32 is the limit"),
        (("I", "FP32", [2, -1], bytes(4)), "tensor 'I' has the shape [2, -1]; dimensions are integers from 0 on"),
        (("I", "FP32", [2.0], bytes(8)), "tensor 'I' has the shape [2.0]; dimensions are integers from 0 on"),
        (("I", "FP32", ["2"], bytes(8)), "tensor 'I' has the shape ['2']; dimensions are integers from 0 on"),
        (("I", "FP32", [1 << 63], b""), f"tensor 'I' has the shape [{1 << 63}]; dimensions are integers from 0 on"),
        (("I", "INT8", [1 << 32, 1 << 31], b""),
         f"tensor 'I' of shape [{1 << 32}, {1 << 31}] has more than {TOP} elements"),
        (("I", "FP32", [2], bytes(7)), "tensor 'I' of FP32 and shape [2] has 8 bytes, its buffer has 7"),
        (("I", "FP32", [2], bytes(9)), "tensor 'I' of FP32 and shape [2] has 8 bytes, its buffer has 9"),
        (("I", "FP64", [], b""), "tensor 'I' of FP64 and shape [] has 8 bytes, its buffer has 0"),
        (("I", "FP64", [1 << 61], b""),
         f"tensor 'I' of FP64 and shape [{1 << 61}] has {1 << 64} bytes, its buffer has 0"),
        (("I", "BOOL", [0], b"x"), "tensor 'I' of BOOL and shape [0] has 0 bytes, its buffer has 1"),
        (("I", "BYTES", [1], b"\3\0\0\0ab"), NO_STRINGS.format(6)),
        (("I", "BYTES", [1], b"\0\0\0"), NO_STRINGS.format(3)),
        (("I", "BYTES", [1], strings(b"a") + b"\xff\xff\xff\xff"), NO_STRINGS.format(9)),
        (("I", "BYTES", [3], strings(b"a", b"")), "tensor 'I' of BYTES and shape [3] has 3 elements, its buffer has 2"),
        (("I", "BYTES", [0], strings(b"")), "tensor 'I' of BYTES and shape [0] has 0 elements, its buffer has 1"),
    ],
)  # fmt: skip
def test_parts_that_do_not_belong_together(arguments, message):
    assert message_of(*arguments) == message


@pytest.mark.parametrize("data", ["text", None, 5, [1.0], np.zeros((2, 2), np.float32)[:, 0]])
def test_what_is_no_contiguous_buffer_is_refused(data):
    assert message_of("I", "FP32", [2], data).startswith("tensor 'I' must be in one contiguous buffer: ")


def test_a_name_that_is_no_text_is_refused():
    assert message_of("a\ud800", "FP32", [1], bytes(4)).startswith("'a\\ud800' is no name of a tensor: ")
    assert BufferTensor("\N{SNOWMAN}", "FP32", [1], bytes(4)).name == "\N{SNOWMAN}"


@given(st.lists(st.binary(max_size=9), max_size=6))
def test_strings_come_back_as_they_were_packed(texts):
    packed = pack_strings(texts)
    assert packed == strings(*texts)
    tensor = BufferTensor("I", "BYTES", [len(texts)], packed)
    assert tensor.strings() == texts and bytes(tensor.buffer()) == packed


@given(st.binary(max_size=40), st.integers(0, 5))
def test_any_bytes_are_so_many_strings_or_refused(data, count):
    try:
        tensor = BufferTensor("I", "BYTES", [count], data)
    except BadRequest:
        return
    assert len(tensor.strings()) == count and pack_strings(tensor.strings()) == data


def test_a_tensor_in_a_region_has_no_bytes_here():
    tensor = BufferTensor.in_region("I", "BYTES", [2], "mine", 40, 8)
    assert (tensor.region, tensor.offset, tensor.nbytes, tensor.shape) == ("mine", 8, 40, (2,))
    with pytest.raises(BadRequest, match="^tensor 'I' is in the region 'mine'$"):
        tensor.buffer()
    with pytest.raises(BadRequest, match="^tensor 'I' is no tensor of BYTES in a buffer$"):
        tensor.strings()
    with pytest.raises(BadRequest, match="^tensor 'I' has the shape"):
        BufferTensor.in_region("I", "FP32", [-1], "mine", 4)


def test_numbers_are_no_strings():
    with pytest.raises(BadRequest, match="^tensor 'I' is no tensor of BYTES in a buffer$"):
        BufferTensor("I", "FP32", [1], bytes(4)).strings()


def test_a_tensor_shows_what_it_is():
    assert repr(BufferTensor("I", "FP32", [1, 2], bytes(8))) == "BufferTensor('I', FP32, [1, 2], 8 bytes)"
    there = BufferTensor.in_region("I", "FP32", [2], "mine", 8, 4)
    assert repr(there) == "BufferTensor('I', FP32, [2], 8 bytes in region 'mine' at 4)"
