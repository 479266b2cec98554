"""Bytes that threads bring where a request or an answer needs them; see late_copies.pxd.  Layer 2 (wire)."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.native.memory cimport Block, MemoryFile
from tisfast.native.region cimport DeviceFile, Region
from tisfast.wire.tensors cimport Tensor

from functools import partial

from tisfast.errors import BadRequest, TisError

cdef enum Strings:
    RIGHT, CUT_LENGTH, CUT_STRING, OTHER_NUMBER


cdef class LateCopy:
    """See late_copies.pxd."""


cdef LateCopy late_copy(Tensor tensor, uint64_t start, uint64_t nbytes, Block block, uint64_t at):
    cdef LateCopy copy = LateCopy.__new__(LateCopy)
    copy.tensor, copy.start, copy.nbytes, copy.block, copy.at = tensor, start, nbytes, block, at
    copy.region = (<Region>tensor.keep).name if isinstance(tensor.keep, Region) else None
    copy.elements = -1
    return copy


cdef LateCopy region_copy(str name, Region region, uint64_t offset, uint64_t nbytes, Block block, uint64_t at):
    cdef Tensor tensor = Tensor.__new__(Tensor)
    tensor.name, tensor.shape, tensor.file, tensor.keep = name, (), region.file, region
    tensor.offset, tensor.nbytes = region.offset + offset, nbytes
    return late_copy(tensor, 0, nbytes, block, at)


cdef list late_steps(list copies, str model):
    cdef LateCopy copy
    cdef list steps = []
    for copy in copies:
        what = name_of(copy, model)
        steps.append((lane_of(copy.tensor.file, copy.nbytes), partial(copied, [copy], model, what), what))
    return steps


cdef str name_of(LateCopy copy, str model):
    if copy.tensor.file.device < 0:
        return ""
    where = "" if copy.region is None else f", in region '{copy.region}'"
    return f"tensor '{copy.tensor.name}' of model '{model}'{where}"


cdef object lane_of(MemoryFile file, uint64_t nbytes):
    return (<DeviceFile>file).memory.lane(nbytes) if file.device >= 0 else None


# In a thread, which lets go of what it was given before it tells: memory is given back by the loop alone.
def copied(list holder, str model, str what):
    cdef LateCopy copy = holder.pop()
    cdef Tensor tensor = copy.tensor
    try:
        tensor.read(copy.start, copy.block.data + copy.at, copy.nbytes)
    except TisError as error:
        return error.status, f"{what}: {error.message}" if what else error.message
    try:
        if copy.elements >= 0:
            walk(copy.block.data + copy.at, copy.nbytes, <uint64_t>copy.elements, copy.who, tensor.name, model)
    except TisError as error:
        return error.status, error.message
    return ()


cdef int walk(
        const unsigned char *at, uint64_t nbytes, uint64_t elements, str who, str name, str model) except -1:
    cdef uint64_t left = nbytes, got = 0
    cdef uint32_t length = 0
    cdef Strings found
    with nogil:
        found = count_strings(at, elements, &left, &got, &length)
    if found == CUT_LENGTH:
        raise BadRequest(
            f"{who}incomplete string length indicator for inference input '{name}' for model '{model}', expecting 4 "
            f"bytes but only {left} bytes available. Please make sure the string length indicator is in one buffer.")
    # Triton counts first: too few elements is the better news of the two.
    check_strings(who, name, model, got, elements)
    if found == CUT_STRING:
        raise BadRequest(
            f"incomplete string data for inference input '{name}', expecting string of length {length} but only {left} "
            "bytes available")
    return 0


# Up to the first string that is one too many or does not end within the bytes.
cdef Strings count_strings(
        const unsigned char *at, uint64_t elements, uint64_t *left, uint64_t *got, uint32_t *length) noexcept nogil:
    while left[0]:
        if left[0] < 4:
            return CUT_LENGTH
        memcpy(length, at, 4)
        at += 4
        left[0] -= 4
        got[0] += 1
        if got[0] > elements:
            return OTHER_NUMBER
        if length[0] > left[0]:
            return CUT_STRING
        at += length[0]
        left[0] -= length[0]
    return RIGHT


cdef int check_strings(str who, str name, str model, uint64_t got, uint64_t expected) except -1:
    if got > expected:
        raise BadRequest(
            f"{who}unexpected number of string elements {expected + 1} for inference input '{name}' for model '{model}', "
            f"expecting {expected}")
    if got < expected:
        raise BadRequest(
            f"{who}expected {expected} string elements for inference input '{name}' for model '{model}', got {got}")
    return 0
