"""JSON text to values, and JSON tensor data straight to tensor bytes.  Layer 2 (wire).

orjson parses.  It refuses NaN and Infinity, which Triton takes: only a text that holds such a word is parsed
again by the standard library.  Values take more memory than their text: a large text is weighed before it is parsed.
"""

from cpython.bool cimport PyBool_Check
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsDouble, PyLong_AsUnsignedLongLong, PyLong_CheckExact
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from tisfast.wire.json_fields cimport shown
from tisfast.wire.signature cimport BOOL, FP32, FP64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64

import json
import re

import orjson

from tisfast import limits, tuning
from tisfast.errors import BadRequest, Internal, TisError
from tisfast.types import BY_CODE

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object o, int *overflow) except? -1

cdef int DEPTH_MAX = limits.JSON_DEPTH_MAX
cdef object orjson_loads = orjson.loads
cdef object WIDE = re.compile(rb"[\xf0-\xf4]")
cdef object SURROGATE = re.compile(r"\\u[dD]")
cdef Py_ssize_t WEIGHED_BYTES_MIN = tuning.JSON_WEIGHED_BYTES_MIN
cdef uint64_t VALUE_BYTES_FREE = limits.JSON_VALUE_BYTES_FREE
cdef uint64_t VALUES_SHARE_MAX = limits.JSON_VALUES_SHARE_MAX

# What CPython takes for one value, with its place in a list or dict.
cdef enum:
    LIST_WEIGHT = 96
    DICT_WEIGHT = 88
    MEMBER_WEIGHT = 48      # of a dict's table, beside name and value
    STRING_WEIGHT = 64
    NUMBER_WEIGHT = 32
    SMALL_WEIGHT = 8        # true, false, null, numbers of two digits: these exist already


cdef object load_json(const unsigned char *text, Py_ssize_t n):
    if n >= WEIGHED_BYTES_MIN:
        check_weight(text, n)
    try:
        return orjson_loads(PyMemoryView_FromMemory(<char *>text, n, PyBUF_READ))
    except ValueError as error:
        return load_lenient(PyBytes_FromStringAndSize(<char *>text, n), error)


# Where the string that begins before `at` ends: behind its quote, or at `end` when it is not closed.
cdef const unsigned char *string_end(const unsigned char *at, const unsigned char *end) noexcept:
    while at < end and at[0] != c'"':
        at += 2 if at[0] == c'\\' else 1
    return at + 1 if at < end else end


# Of orjson.  The standard library has none but the processor's stack, from CPython 3.14 on.
cdef enum:
    NESTING_MAX = 1024


# Where the object or list ends that begins before or at `at`: behind it; at `end` when it is not closed, and NULL when it is
# nested deeper than NESTING_MAX.
cdef const unsigned char *nested_end(const unsigned char *at, const unsigned char *end) noexcept:
    cdef int depth = 0
    cdef unsigned char c
    while at < end:
        c = at[0]
        at += 1
        if c == c'"':
            at = string_end(at, end)
        elif c == c'[' or c == c'{':
            depth += 1
            if depth > NESTING_MAX:
                return NULL
        elif c == c']' or c == c'}':
            depth -= 1
            if depth <= 0:
                return at
    return end


# Memory that the values of a text take, at most, as of JSON; text that is none has no values.
cdef uint64_t values_weight(const unsigned char *text, Py_ssize_t n) noexcept:
    cdef const unsigned char *at = text
    cdef const unsigned char *end = text + n
    cdef const unsigned char *start
    cdef uint64_t weight = 0
    cdef unsigned char c
    while at < end:
        c = at[0]
        at += 1
        if c == c'"':
            start = at
            at = string_end(at, end)
            weight += STRING_WEIGHT + (at - start)
        elif c == c'[':
            weight += LIST_WEIGHT
        elif c == c'{':
            weight += DICT_WEIGHT
        elif c == c':':
            weight += MEMBER_WEIGHT
        elif c == c'-' or c'0' <= c <= c'9' or c == c'N' or c == c'I':
            start = at
            while at < end and (c'+' <= at[0] <= c'9' and at[0] != c',' or c'a' <= (at[0] | 0x20) <= c'z'):
                at += 1
            weight += NUMBER_WEIGHT if at - start > 1 else SMALL_WEIGHT
        elif c == c't' or c == c'f' or c == c'n':
            weight += SMALL_WEIGHT
    return weight


cdef int check_weight(const unsigned char *text, Py_ssize_t n) except -1:
    cdef uint64_t weight = values_weight(text, n)
    cdef uint64_t most = VALUE_BYTES_FREE + VALUES_SHARE_MAX * <uint64_t>n
    if weight > most:
        raise BadRequest(
            f"the values of {n} bytes of request JSON would take up to {weight} bytes of memory; {most} is the limit "
            "for so many.  Send large tensors as binary data")
    return 0


cdef object load_lenient(bytes text, error):
    cdef str spelled
    if "depth" in error.msg:
        raise too_deep()
    if b"NaN" not in text and b"Inf" not in text:
        raise unreadable(error.msg, error.pos) if "UTF-8" not in error.msg else not_utf8(text)
    cdef const unsigned char *start = <const unsigned char *>PyBytes_AS_STRING(text)
    if nested_end(start, start + len(text)) == NULL:
        raise too_deep()
    try:
        spelled = spelled_out(text)
        value = json.loads(spelled)
        if SURROGATE.search(spelled):
            json.dumps(value, ensure_ascii=False).encode()  # half a pair is no text: orjson refuses it, so do we
        return value
    except RecursionError:
        raise too_deep() from None
    except UnicodeError as again:
        raise unreadable(f"text is not valid UTF-8: {again.reason}", again.start) from None
    except json.JSONDecodeError as again:
        raise unreadable(again.msg, again.pos) from None
    except ValueError as again:  # an integer of thousands of digits
        raise unreadable(str(again), 0) from None


cdef inline bint starts(const unsigned char *at, const unsigned char *end, const char *word, Py_ssize_t n) noexcept:
    return end - at >= n and memcmp(at, word, n) == 0


# One character beyond the first 65,536 makes Python spend four bytes on each.
cdef int check_spelled(bytes text, uint64_t longer) except -1:
    cdef uint64_t n = <uint64_t>len(text)
    cdef uint64_t taken = n + (n + longer) * (5 if WIDE.search(text) else 3 if not text.isascii() else 2)
    if taken > VALUE_BYTES_FREE + VALUES_SHARE_MAX * n:
        raise BadRequest(
            f"{n} bytes of request JSON with Inf in it would take {taken} bytes of memory to read; write Infinity, or send "
            "large tensors as binary data")
    return 0


# Triton's parser also takes Inf and -NaN; the standard library's does not.
cdef str spelled_out(bytes text):
    """The text with the standard library's spelling of these words; strings stay.  Raises UnicodeDecodeError also for half
    a surrogate, which `json.loads` of bytes would let pass."""
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(text)
    cdef const unsigned char *end = at + len(text)
    cdef const unsigned char *start
    cdef Py_ssize_t longer = 5 * text.count(b"Inf")
    check_spelled(text, longer)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, len(text) + longer)
    cdef unsigned char *out = <unsigned char *>PyBytes_AS_STRING(made)
    while at < end:
        start = at
        if at[0] == c'"':
            at = string_end(at + 1, end)
        elif at[0] == c'-' and starts(at + 1, end, b"NaN", 3):
            at += 1
            continue
        elif starts(at, end, b"Infinity", 8):
            at += 8
        elif starts(at, end, b"Inf", 3):
            at += 3
            memcpy(out, <const char *>b"Infinity", 8)
            out += 8
            continue
        else:
            at += 1
        memcpy(out, start, at - start)
        out += at - start
    return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(made), out - <unsigned char *>PyBytes_AS_STRING(made), NULL)


cdef unreadable(what, place):
    return Internal(f"failed to parse the request JSON buffer: {what} at {place}")


# orjson says neither where nor what it is.
cdef not_utf8(bytes text):
    try:
        text.decode()
    except UnicodeError as error:
        return unreadable(f"text is not valid UTF-8: {error.reason}", error.start)
    return unreadable("text is not valid UTF-8", 0)


# Of a text that load_json refuses: the object that it begins with, if that is one of binary tensors; else None.
cdef object binary_head(const unsigned char *data, Py_ssize_t n):
    cdef bytes text = PyBytes_FromStringAndSize(<char *>data, n)
    if b"binary_data_size" not in text:
        return None
    cdef const unsigned char *end = nested_end(data, data + n)
    if end == NULL:
        return None
    try:
        value = load_json(data, end - data)
    except TisError:
        return None
    return value if type(value) is dict and b"binary_data_size" in text[:end - data] else None


cdef too_deep():
    return BadRequest(f"Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit ({DEPTH_MAX})")


cdef not_a(str kind, str target, str name, value):
    return Internal(
        f"Unable to parse 'data': attempt to access JSON non-{kind} as {target} (input '{name}', value {shown(value)})")


cdef struct Sink:
    unsigned char *out
    uint64_t at
    uint64_t elements
    int dtype


cdef int fill_numbers(list data, int dtype, unsigned char *out, uint64_t elements, str name) except -1:
    cdef Sink sink = Sink(out, 0, elements, dtype)
    fill(data, &sink, 1, name)
    if sink.at != elements:
        raise Internal(
            f"Unable to parse 'data': Shape does not match true shape of 'data' field (input '{name}': "
            f"{elements} elements by its shape, {sink.at} in 'data')")
    return 0


# depth: of the list's items.
cdef int fill(list data, Sink *sink, int depth, str name) except -1:
    cdef Py_ssize_t i
    cdef PyObject *borrowed
    cdef object item
    if depth >= DEPTH_MAX and PyList_GET_SIZE(data):
        raise too_deep()
    for i in range(PyList_GET_SIZE(data)):
        borrowed = PyList_GET_ITEM(data, i)
        item = <object>borrowed
        if PyList_CheckExact(item):
            fill(<list>item, sink, depth + 1, name)
            continue
        if sink.at >= sink.elements:
            raise Internal(
                f"Unable to parse 'data': Shape does not match true shape of 'data' field (input '{name}': "
                f"{sink.elements} elements by its shape, more in 'data')")
        if sink.dtype == FP32 or sink.dtype == FP64:
            put_float(item, sink, name)
        elif sink.dtype == BOOL:
            put_bool(item, sink, name)
        elif sink.dtype <= UINT64:
            put_unsigned(item, sink, name)
        else:
            put_signed(item, sink, name)
        sink.at += 1
    return 0


cdef double double_of(object item, str name) except? -1:
    try:
        return PyLong_AsDouble(item)
    except OverflowError:
        raise Internal(f"Unable to parse 'data': Number too big to be stored in double. (input '{name}')") from None


cdef inline int put_float(object item, Sink *sink, str name) except -1:
    cdef double value
    if PyFloat_CheckExact(item):
        value = PyFloat_AS_DOUBLE(item)
    elif PyLong_CheckExact(item):
        value = double_of(item, name)
    else:
        raise not_a("number", "double", name, item)
    if sink.dtype == FP32:
        (<float *>sink.out)[sink.at] = <float>value
    else:
        (<double *>sink.out)[sink.at] = value
    return 0


cdef inline int put_bool(object item, Sink *sink, str name) except -1:
    if not PyBool_Check(item):
        raise not_a("boolean", "boolean", name, item)
    sink.out[sink.at] = item is True
    return 0


cdef out_of_range(object item, Sink *sink, str name):
    bits = int("".join(filter(str.isdigit, BY_CODE[sink.dtype].wire)))
    low, high = (0, 2**bits - 1) if sink.dtype <= UINT64 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return BadRequest(
        f"Unable to parse 'data': {item} of input '{name}' is outside {BY_CODE[sink.dtype].wire}'s range {low} to {high}")


# A number from 2^63 up; the standard library also gives numbers that fit no 64 bits.
cdef uint64_t beyond_signed(object item, str name) except? 0:
    try:
        return PyLong_AsUnsignedLongLong(item)
    except OverflowError:
        raise not_a("unsigned-integer", "unsigned-integer", name, item) from None


cdef inline int put_unsigned(object item, Sink *sink, str name) except -1:
    cdef uint64_t value
    cdef int overflow = 0
    cdef int64_t small
    if not PyLong_CheckExact(item):
        raise not_a("unsigned-integer", "unsigned-integer", name, item)
    small = PyLong_AsLongLongAndOverflow(item, &overflow)
    if overflow < 0 or (overflow == 0 and small < 0):
        raise not_a("unsigned-integer", "unsigned-integer", name, item)
    value = <uint64_t>small if overflow == 0 else beyond_signed(item, name)
    if sink.dtype == UINT64:
        (<uint64_t *>sink.out)[sink.at] = value
    elif sink.dtype == UINT32 and value <= 0xFFFFFFFF:
        (<uint32_t *>sink.out)[sink.at] = <uint32_t>value
    elif sink.dtype == UINT16 and value <= 0xFFFF:
        (<uint16_t *>sink.out)[sink.at] = <uint16_t>value
    elif sink.dtype == UINT8 and value <= 0xFF:
        sink.out[sink.at] = <uint8_t>value
    else:
        raise out_of_range(item, sink, name)
    return 0


cdef inline int put_signed(object item, Sink *sink, str name) except -1:
    cdef int64_t value
    cdef int overflow = 0
    if not PyLong_CheckExact(item):
        raise not_a("signed-integer", "signed-integer", name, item)
    value = PyLong_AsLongLongAndOverflow(item, &overflow)
    if overflow:
        raise not_a("signed-integer", "signed-integer", name, item)
    if sink.dtype == INT64:
        (<int64_t *>sink.out)[sink.at] = value
    elif sink.dtype == INT32 and value == <int32_t>value:
        (<int32_t *>sink.out)[sink.at] = <int32_t>value
    elif sink.dtype == INT16 and value == <int16_t>value:
        (<int16_t *>sink.out)[sink.at] = <int16_t>value
    elif sink.dtype == INT8 and value == <int8_t>value:
        (<int8_t *>sink.out)[sink.at] = <int8_t>value
    else:
        raise out_of_range(item, sink, name)
    return 0


cdef int measure_strings(list data, uint64_t *elements, uint64_t *nbytes, str name) except -1:
    elements[0] = 0
    nbytes[0] = 0
    return measure(data, elements, nbytes, 1, name)


cdef int measure(list data, uint64_t *elements, uint64_t *nbytes, int depth, str name) except -1:
    cdef Py_ssize_t length
    if depth >= DEPTH_MAX and data:
        raise too_deep()
    for item in data:
        if PyList_CheckExact(item):
            measure(<list>item, elements, nbytes, depth + 1, name)
            continue
        if not PyUnicode_CheckExact(item):
            raise Internal(
                "Unable to parse JSON bytes array: attempt to access JSON non-string as string "
                f"(input '{name}', value {shown(item)})")
        PyUnicode_AsUTF8AndSize(item, &length)
        if length > 0xFFFFFFFF:
            raise BadRequest(f"input '{name}' has a string of {length} bytes; 4294967295 is the limit")
        elements[0] += 1
        nbytes[0] += 4 + <uint64_t>length
    return 0


cdef int fill_strings(list data, unsigned char **out) except -1:
    cdef Py_ssize_t length
    cdef const char *text
    cdef uint32_t prefix
    for item in data:
        if PyList_CheckExact(item):
            fill_strings(<list>item, out)
            continue
        text = PyUnicode_AsUTF8AndSize(item, &length)
        prefix = <uint32_t>length
        memcpy(out[0], &prefix, 4)
        memcpy(out[0] + 4, text, length)
        out[0] += 4 + length
    return 0


def load(bytes text) -> object:
    """Parse a JSON text; NaN, Infinity and -Infinity are taken."""
    return load_json(<const unsigned char *>text, len(text))


def numbers(list data, int dtype, int elements, int item_size) -> bytes:
    """Tensor bytes of JSON numbers or truth values, for tests."""
    cdef bytearray out = bytearray(elements * item_size)
    fill_numbers(data, dtype, <unsigned char *>out, <uint64_t>elements, "test")
    return bytes(out)
