"""Typed tensor contents become tensor bytes: measured first, decoded when a block is there.  Layer 2 (wire).

Repeated fields come packed, one by one, or in several parts, as every protobuf reader takes them.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, int32_t
from libc.string cimport memcpy
from tisfast.wire.grpc.cursor cimport (
    FIELD, FIXED32, FIXED64, LEN, NO_FIELD, VARINT, Cursor, Field, cursor, next_field, take_varint)
from tisfast.wire.grpc.values cimport broken
from tisfast.wire.signature cimport BOOL, BYTES, FP32, FP64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, item_bytes

from tisfast.errors import BadRequest
from tisfast.types import BY_CODE

cdef enum:
    CONTENTS = 5        # field of InferInputTensor
    BOOLS = 1           # fields of InferTensorContents
    INTS = 2
    INT64S = 3
    UINTS = 4
    UINT64S = 5
    FLOATS = 6
    DOUBLES = 7
    STRINGS = 8

cdef tuple FIELD_TYPES = ("", "BOOL", "INT32", "INT64", "UINT32", "UINT64", "FP32", "FP64", "BYTES")


cdef class Contents:
    """See contents.pxd."""

    cdef int fill(self, unsigned char *out) except -1:
        cdef Cursor input = cursor(self.input, self.input_bytes)
        cdef Cursor inner
        cdef Field contents, field
        while next_field(&input, &contents) == FIELD:
            if contents.number != CONTENTS or contents.kind != LEN:
                continue
            inner = cursor(contents.data, contents.nbytes)
            while next_field(&inner, &field) == FIELD:
                if field.number == self.number:
                    out = decode(self, &field, out)
        return 0


# Which fields hold elements, and how many; field.nbytes of the message may be cut anywhere.
cdef Contents measure_contents(
        const unsigned char *input, uint64_t input_bytes, int dtype, str name, str datatype, str model_name):
    cdef Contents contents = Contents.__new__(Contents)
    cdef uint64_t nbytes[9]         # by field number: what its elements come to
    cdef int number
    contents.input = input
    contents.input_bytes = input_bytes
    contents.dtype = <uint8_t>dtype
    contents.name = name
    measure(input, input_bytes, dtype, nbytes)
    for number in range(BOOLS, STRINGS + 1):
        if nbytes[number] == 0:
            continue
        if contents.nbytes:
            raise BadRequest(
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model_name}', binary data was "
                f"already supplied. (as {FIELD_TYPES[contents.number]}, and as {FIELD_TYPES[number]} again)")
        if not holds(number, dtype):
            raise BadRequest(
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model_name}' of type "
                f"'{FIELD_TYPES[number]}', expected datatype '{datatype}'")
        contents.number = <uint8_t>number
        contents.nbytes = nbytes[number]
    return contents


cdef bint holds(int number, int dtype) noexcept:
    if number == BOOLS:
        return dtype == BOOL
    if number == INTS:
        return dtype == INT8 or dtype == INT16 or dtype == INT32
    if number == INT64S:
        return dtype == INT64
    if number == UINTS:
        return dtype == UINT8 or dtype == UINT16 or dtype == UINT32
    if number == UINT64S:
        return dtype == UINT64
    if number == FLOATS:
        return dtype == FP32
    if number == DOUBLES:
        return dtype == FP64
    return dtype == BYTES


cdef int measure(const unsigned char *data, uint64_t data_bytes, int dtype, uint64_t *nbytes) except -1:
    cdef Cursor input = cursor(data, data_bytes)
    cdef Cursor inner
    cdef Field contents, field
    cdef uint64_t size = item_bytes(dtype) or 1
    cdef int i, state
    for i in range(9):
        nbytes[i] = 0
    while next_field(&input, &contents) == FIELD:
        if contents.number != CONTENTS or contents.kind != LEN:
            continue
        inner = cursor(contents.data, contents.nbytes)
        while True:
            state = next_field(&inner, &field)
            if state != FIELD:
                break
            if BOOLS <= field.number <= STRINGS:
                nbytes[field.number] += size * elements_of(&field) if field.number < STRINGS else string_bytes(&field)
        if state != NO_FIELD:
            raise broken()
    return 0


cdef uint64_t string_bytes(const Field *field) noexcept:
    return 4 + field.nbytes if field.kind == LEN else 0


# Numbers in one field, packed or alone.
cdef uint64_t elements_of(const Field *field) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t width = 4 if field.number == FLOATS else 8 if field.number == DOUBLES else 0
    if field.kind == LEN:
        if width == 0:
            return count_varints(field.data, field.nbytes)
        if field.nbytes % width:
            raise broken()
        return field.nbytes // width
    if width == 0:
        return field.kind == VARINT
    return field.kind == (FIXED32 if width == 4 else FIXED64)


cdef uint64_t count_varints(const unsigned char *data, uint64_t nbytes) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t count = 0, i
    cdef int length = 0
    for i in range(nbytes):
        length += 1
        if data[i] < 0x80:
            count += 1
            length = 0
        elif length == 10:
            raise broken()
    if length:
        raise broken()
    return count


# Writes the elements of one field; returns where the next go.
cdef unsigned char *decode(Contents contents, const Field *field, unsigned char *out) except NULL:
    cdef uint64_t value
    cdef Cursor c
    if field.number == STRINGS:
        return put_string(field, out) if field.kind == LEN else out
    if field.number == FLOATS or field.number == DOUBLES:
        return put_reals(field, out)
    if field.kind == VARINT:
        return put_whole(contents, field.value, out)
    if field.kind != LEN:
        return out
    c = cursor(field.data, field.nbytes)
    while c.at < c.end and take_varint(&c, &value):
        out = put_whole(contents, value, out)
    return out


cdef unsigned char *put_string(const Field *field, unsigned char *out) noexcept:
    cdef uint32_t length = <uint32_t>field.nbytes
    memcpy(out, &length, 4)
    memcpy(out + 4, field.data, field.nbytes)
    return out + 4 + field.nbytes


cdef unsigned char *put_reals(const Field *field, unsigned char *out) noexcept:
    cdef int width = 4 if field.number == FLOATS else 8
    if field.kind == LEN:
        memcpy(out, field.data, field.nbytes)
        return out + field.nbytes
    if field.kind == (FIXED32 if width == 4 else FIXED64):
        memcpy(out, &field.value, width)
        return out + width
    return out


# An integer or truth value in the width of the tensor's type.
cdef unsigned char *put_whole(Contents contents, uint64_t value, unsigned char *out) except NULL:
    cdef uint32_t size = item_bytes(contents.dtype)
    if contents.number == BOOLS:
        value = value != 0
    elif size < 4:
        check_range(contents, value)
    memcpy(out, &value, size)  # little-endian: the low bytes
    return out + size


# Small integers travel in 32 bits.
cdef int check_range(Contents contents, uint64_t value) except -1:
    cdef int32_t signed = <int32_t>value
    cdef int bits = 8 * <int>item_bytes(contents.dtype)
    if contents.number == UINTS:
        if <uint32_t>value >> bits == 0:
            return 0
        got = str(<uint32_t>value)
    else:
        if -(1 << (bits - 1)) <= signed < 1 << (bits - 1):
            return 0
        got = str(signed)
    raise BadRequest(f"value {got} of input tensor '{contents.name}' does not fit its datatype {BY_CODE[contents.dtype].wire}")
