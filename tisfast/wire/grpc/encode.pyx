"""Small protobuf fields, by way of Python values; see encode.pxd.  Layer 2 (wire)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from tisfast.wire.grpc.cursor cimport put_varint

import struct

from tisfast.errors import Internal


cdef bytes varint(object value):
    cdef unsigned char out[10]
    cdef unsigned char *end = put_varint(out, <uint64_t>value)
    return PyBytes_FromStringAndSize(<char *>out, end - out)


cdef bytes field(int number, bytes data):
    return varint(number << 3 | 2) + varint(len(data)) + data


cdef bytes text_field(int number, str text):
    return field(number, text.encode("utf-8", "backslashreplace")) if text else b""


cdef bytes encoded_parameters(int number, dict values):
    return b"".join([
        field(number, field(1, name.encode("utf-8", "backslashreplace")) + field(2, parameter(name, values[name])))
        for name in values])


cdef bytes parameter(str name, object value):
    if type(value) is bool:
        return b"\x08" + varint(<int>value)
    if type(value) is str:
        return field(3, value.encode("utf-8", "backslashreplace"))
    if type(value) is float:
        return b"\x21" + struct.pack("<d", value)
    if type(value) is not int or not -(1 << 63) <= value < 1 << 64:
        raise Internal(
            f"response parameter '{name:.100}' is {value!r:.60}; gRPC takes a bool, a str, a float, and an int of 64 bits")
    if value > 0x7FFFFFFFFFFFFFFF:
        return b"\x28" + varint(value)
    return b"\x10" + varint(value & 0xFFFFFFFFFFFFFFFF)
