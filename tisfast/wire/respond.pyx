"""An Answer becomes a response body: JSON, then binary tensors where they lie.  Layer 2 (wire).

Nothing here copies a binary tensor.  What follows from the answer's signature alone is rendered once per signature
(record.AnswerLayout).  Floats go through orjson; NaN and the infinities, which it would make null, are passed to it as
ready JSON.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_FromDouble
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.math cimport isfinite, isnan, signbit
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.wire.infer_plan cimport OutputChoice
from tisfast.wire.outputs cimport SpecialOutput, is_written, prepare
from tisfast.wire.record cimport Answer, InferInput, OutputRef
from tisfast.wire.signature cimport (
    BF16, BOOL, BYTES, FP16, FP32, FP64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, TensorSpec)
from tisfast.wire.text_buffer cimport TextBuffer

import orjson

from tisfast.errors import BadRequest, Internal

cdef object orjson_dumps = orjson.dumps
cdef object NAN_TEXT = orjson.Fragment(b"NaN")
cdef object INFINITY_TEXT = orjson.Fragment(b"Infinity")
cdef object MINUS_INFINITY_TEXT = orjson.Fragment(b"-Infinity")
cdef uint64_t FLOATS_AT_ONCE = 4096  # Python floats alive at one time
cdef uint64_t NUMBER_TEXT_FACTOR = 3  # of a number's bytes: those of its text, with the comma
cdef double WHOLE_MAX = 1e9  # far below where orjson changes to exponents
cdef Py_ssize_t WHOLE_BYTES_MAX = 13  # of such a float: comma, sign, nine digits, point, zero


cdef class ResponseBody:
    """See respond.pxd."""

    def __cinit__(self, Py_ssize_t cap=4096):
        self.text = TextBuffer(cap)

    def __dealloc__(self):
        PyMem_Free(self.segments)

    cdef int add_segment(self, const unsigned char *data, uint64_t nbytes) except -1:
        cdef Segment *grown
        if self.count == self.room:
            grown = <Segment *>PyMem_Realloc(self.segments, (self.room + 16) * sizeof(Segment))
            if grown == NULL:
                raise MemoryError()
            self.segments = grown
            self.room += 16
        self.segments[self.count].data = data
        self.segments[self.count].nbytes = nbytes
        self.count += 1
        self.tensor_bytes += nbytes
        return 0

    cdef int render(self, Answer answer) except -1:
        cdef TextBuffer text = self.text
        cdef InferInput request = answer.input
        cdef Py_ssize_t id_bytes
        cdef const char *id_text
        self.count = 0
        self.tensor_bytes = 0
        text.put(b"{", 1)
        if request.id:
            text.put(b'"id":', 5)
            id_text = PyUnicode_AsUTF8AndSize(request.id, &id_bytes)
            text.put_string(<const unsigned char *>id_text, id_bytes)
            text.put(b",", 1)
        text.put_bytes(request.model.head_json)
        if answer.parameters and answer.parameters != b"{}":
            text.put(b',"parameters":', 14)
            text.put_bytes(answer.parameters)
        text.put(b',"outputs":[', 12)
        render_outputs(self, answer, <OutputChoice>request.outputs)
        text.put(b"]}", 2)
        return 0


cdef uint64_t text_bytes(Answer answer, bint all) except? 0xFFFFFFFFFFFFFFFF:
    cdef OutputChoice choice = <OutputChoice>answer.input.outputs
    cdef OutputRef *out
    cdef uint64_t total = 0
    cdef int i
    for i in range(answer.count):
        out = &answer.outputs[i]
        if not answer.input.requested >> out.index & 1:
            continue
        if choice.special >> out.index & 1:
            total += 0 if is_written(answer, out) else out.nbytes
        elif not choice.is_binary(out.index):
            total += out.nbytes if out.dtype == BYTES else NUMBER_TEXT_FACTOR * out.nbytes
        elif all:
            total += out.nbytes
    return total


cdef int render_outputs(ResponseBody body, Answer answer, OutputChoice choice) except -1:
    cdef TextBuffer text = body.text
    cdef OutputRef *out
    cdef bint first = True
    cdef int i
    for i in range(answer.count):
        out = &answer.outputs[i]
        if not answer.input.requested >> out.index & 1:
            continue
        if not first:
            text.put(b",", 1)
        first = False
        if choice.special >> out.index & 1:
            put_special(body, answer, out, choice)
            continue
        text.put_bytes(<bytes>answer.layout.heads_json[i])
        if choice.is_binary(out.index):
            text.put(b',"parameters":{"binary_data_size":', 34)
            text.put_uint(out.nbytes)
            text.put(b"}}", 2)
            if out.nbytes:
                body.add_segment(out.data, out.nbytes)
        else:
            text.put(b',"data":[', 9)
            put_data(text, answer, out)
            text.put(b"]}", 2)
    return 0


# Best classes instead of the tensor, or what says that it is in a region.
cdef int put_special(ResponseBody body, Answer answer, OutputRef *out, OutputChoice choice) except -1:
    cdef SpecialOutput special = prepare(answer, out)
    cdef TextBuffer text = body.text
    if special.region is not None:
        text.put_bytes(<bytes>answer.layout.heads_json[out - answer.outputs])
        return text.put(b"}", 1)
    shape = ",".join([str(dim) for dim in special.shape])
    text.put_bytes(b'{"name":%b,"datatype":"BYTES","shape":[%b]' % (orjson.dumps(name_of(answer, out)), shape.encode()))
    if choice.is_binary(out.index):
        text.put(b',"parameters":{"binary_data_size":', 34)
        text.put_uint(<uint64_t>len(special.strings))
        text.put(b"}}", 2)
        if special.strings:
            body.add_segment(<unsigned char *>PyBytes_AS_STRING(special.strings), len(special.strings))
        return 0
    text.put(b',"data":[', 9)
    put_strings(
        text, <unsigned char *>PyBytes_AS_STRING(special.strings), <uint64_t>len(special.strings), special.elements,
        name_of(answer, out))
    return text.put(b"]}", 2)


cdef int put_data(TextBuffer text, Answer answer, OutputRef *out) except -1:
    cdef uint64_t elements = 1
    cdef int i
    if out.dtype == FP16 or out.dtype == BF16:
        raise BadRequest(
            f"sending {'FP16' if out.dtype == FP16 else 'BF16'} data via JSON is not supported. Please use the binary "
            f"data format for output '{name_of(answer, out)}'")
    for i in range(out.rank):
        elements *= <uint64_t>out.shape[i]
    return put_elements(text, out.dtype, out.data, out.nbytes, elements, name_of(answer, out))


cdef int put_elements(
        TextBuffer text, int dtype, const unsigned char *data, uint64_t nbytes, uint64_t elements, str name) except -1:
    if dtype == FP32:
        return put_floats(text, data, nbytes // 4, False)
    if dtype == FP64:
        return put_floats(text, data, nbytes // 8, True)
    if dtype == BYTES:
        return put_strings(text, data, nbytes, elements, name)
    return put_numbers(text, dtype, data, nbytes)


cdef str name_of(Answer answer, OutputRef *out):
    return (<TensorSpec>answer.input.model.outputs[out.index]).name


cdef inline object json_float(double value):
    if isfinite(value):
        return PyFloat_FromDouble(value)
    if isnan(value):
        return NAN_TEXT
    return INFINITY_TEXT if value > 0 else MINUS_INFINITY_TEXT


# data may lie at any address: it is read with memcpy.
cdef inline double float_at(const unsigned char *data, uint64_t i, bint wide) noexcept:
    cdef float narrow
    cdef double value
    if wide:
        memcpy(&value, data + 8 * i, 8)
        return value
    memcpy(&narrow, data + 4 * i, 4)
    return narrow


# Labels, counts, masks and pixels come as floats without a fraction: their text is orjson's, without a Python float.
cdef inline bint is_whole(double value) noexcept:
    return -WHOLE_MAX < value < WHOLE_MAX and value == <int64_t>value and not (value == 0 and signbit(value))


cdef int put_floats(TextBuffer text, const unsigned char *data, uint64_t n, bint wide) except -1:
    cdef uint64_t i = 0
    while i < n:
        i = put_whole_floats(text, data, i, n, wide)
        if i < n and not is_whole(float_at(data, i, wide)):
            i = put_odd_floats(text, data, i, n, wide)
    return 0


# Floats without a fraction from i on, up to the first that has one; returns its index.
cdef uint64_t put_whole_floats(
        TextBuffer text, const unsigned char *data, uint64_t i, uint64_t n, bint wide) except? 0:
    cdef uint64_t end = min(n, i + FLOATS_AT_ONCE)
    cdef unsigned char *start = text.room(<Py_ssize_t>(end - i) * WHOLE_BYTES_MAX)
    cdef unsigned char *out = start
    cdef double value
    while i < end:
        value = float_at(data, i, wide)
        if not is_whole(value):
            break
        if i:
            out[0] = c','
            out += 1
        if value < 0:
            out[0] = c'-'
            out += 1
        out += digits(out, <uint32_t>(-value if value < 0 else value))
        out[0] = c'.'
        out[1] = c'0'
        out += 2
        i += 1
    text.used += out - start
    return i


# Writes a number below 10^9 in decimal; returns its length.
cdef inline int digits(unsigned char *out, uint32_t number) noexcept:
    cdef uint32_t rest = number // 10
    cdef int n = 1
    while rest:
        rest //= 10
        n += 1
    cdef int at = n
    while at:
        at -= 1
        out[at] = <unsigned char>(48 + number % 10)
        number //= 10
    return n


# Some of the floats from i on, through orjson; returns the next one.
cdef uint64_t put_odd_floats(TextBuffer text, const unsigned char *data, uint64_t i, uint64_t n, bint wide) except 0:
    cdef uint64_t end = min(n, i + FLOATS_AT_ONCE), at
    cdef list part = PyList_New(<Py_ssize_t>(end - i))
    cdef object item
    cdef bytes dumped
    for at in range(i, end):
        item = json_float(float_at(data, at, wide))
        Py_INCREF(item)
        PyList_SET_ITEM(part, <Py_ssize_t>(at - i), item)
    dumped = orjson_dumps(part)
    if i:
        text.put(b",", 1)
    text.put(PyBytes_AS_STRING(dumped) + 1, PyBytes_GET_SIZE(dumped) - 2)
    return end


cdef int put_numbers(TextBuffer text, int dtype, const unsigned char *data, uint64_t nbytes) except -1:
    cdef uint64_t at = 0
    while at < nbytes:
        if at:
            text.put(b",", 1)
        at += put_number(text, dtype, data + at)
    return 0


# Returns the bytes of the element.
cdef int put_number(TextBuffer text, int dtype, const unsigned char *data) except -1:
    cdef int16_t i16
    cdef int32_t i32
    cdef int64_t i64
    cdef uint16_t u16
    cdef uint32_t u32
    cdef uint64_t u64
    if dtype == INT64:
        memcpy(&i64, data, 8)
        text.put_int(i64)
        return 8
    if dtype == INT32:
        memcpy(&i32, data, 4)
        text.put_int(i32)
        return 4
    if dtype == UINT8:
        text.put_uint(data[0])
        return 1
    if dtype == BOOL:
        text.put(b"true" if data[0] else b"false", 4 if data[0] else 5)
        return 1
    if dtype == INT8:
        text.put_int(<int8_t>data[0])
        return 1
    if dtype == INT16:
        memcpy(&i16, data, 2)
        text.put_int(i16)
        return 2
    if dtype == UINT16:
        memcpy(&u16, data, 2)
        text.put_uint(u16)
        return 2
    if dtype == UINT32:
        memcpy(&u32, data, 4)
        text.put_uint(u32)
        return 4
    memcpy(&u64, data, 8)
    text.put_uint(u64)
    return 8


cdef int put_strings(
        TextBuffer text, const unsigned char *at, uint64_t nbytes, uint64_t elements, str name) except -1:
    cdef uint64_t got = 0, left = nbytes
    cdef uint32_t length
    while left >= 4 and got < elements:
        memcpy(&length, at, 4)
        if length > left - 4:
            break
        if got:
            text.put(b",", 1)
        text.put_string(at + 4, length)
        at += 4 + length
        left -= 4 + length
        got += 1
    if got != elements or left:
        raise Internal(
            f"output tensor shape does not match size of output for '{name}' ({elements} elements by its shape, {got} whole "
            f"ones in its {nbytes} bytes)")
    return 0


def render(Answer answer) -> tuple:
    """(JSON, binary tail) of an answer, for tests."""
    cdef ResponseBody body = ResponseBody()
    cdef int i
    body.render(answer)
    tail = [(<char *>body.segments[i].data)[:body.segments[i].nbytes] for i in range(body.count)]
    return body.text.value(), b"".join(tail)
