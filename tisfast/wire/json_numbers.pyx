"""Numbers in an inference's JSON, without Python objects; see json_numbers.pxd.  Layer 2 (wire).

A client sends the same JSON again and again with other numbers in it.  What is left without the numbers is remembered
with its plan, as heads before binary tensors are (wire/infer), and the numbers are read here.  Whatever is unusual is left
to the parser, so errors and rounding are the same either way.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport isinf
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy
from tisfast.wire.signature cimport (
    FP32, FP64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64)

cdef enum:
    LONG_ELEMENTS_MAX = 64  # with more digits than are exact here CPython reads them, which is slow for many
    EXPONENT_MAX = 22   # powers of ten that a double holds exactly
cdef uint64_t EXACT_MAX = 1 << 53
cdef uint64_t DIGITS_MAX = 99999999999999999  # one digit more still fits 63 bits

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **end, void *overflow)
cdef double[23] POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22]

cdef struct Number:
    uint64_t digits     # all of them, without the point
    int exponent        # of ten
    bint negative
    bint whole          # spelled without point and exponent
    bint long           # `digits` has not all of them
    const char *text


cdef inline bint is_space(unsigned char c) noexcept:
    return c == c' ' or c == c'\n' or c == c'\t' or c == c'\r'


cdef inline const unsigned char *skip_space(const unsigned char *at, const unsigned char *end) noexcept:
    while at < end and is_space(at[0]):
        at += 1
    return at


cdef int find_spans(const unsigned char *text, uint64_t n, Span *spans) noexcept:
    cdef const unsigned char *at = text
    cdef const unsigned char *end = text + n
    cdef const unsigned char *found
    cdef int count = 0
    while True:
        found = <const unsigned char *>memchr(at, c'"', end - at)
        if found == NULL:
            return count
        at = found + 1
        if end - found < 6 or memcmp(found, b'"data"', 6) != 0:
            continue
        if found > text and (found - 1)[0] == c'\\':  # inside of a string
            return 0
        at = skip_space(found + 6, end)
        if at == end or at[0] != c':':
            continue  # a value, not a key
        at = skip_space(at + 1, end)
        if at == end or at[0] != c'[' or count == SPANS_MAX:
            return 0
        found = <const unsigned char *>memchr(at, c']', end - at)
        if found == NULL:
            return 0
        spans[count] = [at + 1, found - at - 1]
        at = skip_space(at + 1, end)
        if at[0] != c'-' and not c'0' <= at[0] <= c'9':
            return 0
        count += 1
        at = found


cdef bytes elided(
        const unsigned char *text, uint64_t n, uint64_t skip, const Span *spans, int count, uint64_t bytes_max,
        bytes forwarded):
    cdef uint64_t size = n - skip
    cdef const unsigned char *at = text + skip
    cdef bytes left
    cdef char *out
    cdef int i
    for i in range(count):
        size -= spans[i].nbytes
    if size > bytes_max:
        return None
    left = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size + 2 + PyBytes_GET_SIZE(forwarded))
    out = PyBytes_AS_STRING(left)
    out[0] = (skip > 0) | (count > 0) << 1
    out += 1
    for i in range(count):
        memcpy(out, at, spans[i].at - at)
        out += spans[i].at - at
        at = spans[i].at + spans[i].nbytes
    memcpy(out, at, text + n - at)
    out += text + n - at
    out[0] = 0
    memcpy(out + 1, PyBytes_AS_STRING(forwarded), PyBytes_GET_SIZE(forwarded))
    return left


cdef bint is_spelled(int dtype) noexcept:
    return dtype == FP32 or dtype == FP64 or INT8 <= dtype <= INT64 or UINT8 <= dtype <= UINT64


cdef bint read_span(const Span *span, int dtype, unsigned char *out, uint64_t elements) noexcept:
    cdef const unsigned char *at = span.at
    cdef const unsigned char *end = span.at + span.nbytes
    cdef Number number
    cdef uint64_t i
    for i in range(elements):
        at = read_number(skip_space(at, end), end, &number)
        if at == NULL or not put(&number, dtype, out, i, elements <= LONG_ELEMENTS_MAX):
            return False
        at = skip_space(at, end)
        if i + 1 == elements:
            return at == end
        if at == end or at[0] != c',':
            return False
        at += 1
    return False


cdef inline void add_digit(Number *number, unsigned char digit) noexcept:
    if number.digits > DIGITS_MAX:
        number.long = True
    else:
        number.digits = 10 * number.digits + (digit - 48)


# Returns where it ends, NULL when there is none.  Grammar of RFC 8259, section 6.
cdef const unsigned char *read_number(
        const unsigned char *at, const unsigned char *end, Number *number) noexcept:
    cdef const unsigned char *start
    cdef int exponent = 0
    cdef bint down
    number.text = <const char *>at
    number.long = False
    number.negative = at < end and at[0] == c'-'
    at += number.negative
    start = at
    number.digits = 0
    while at < end and c'0' <= at[0] <= c'9':
        add_digit(number, at[0])
        at += 1
    if at == start or (start[0] == c'0' and at - start > 1):
        return NULL
    number.whole = True
    number.exponent = 0
    if at < end and at[0] == c'.':
        number.whole = False
        at += 1
        start = at
        while at < end and c'0' <= at[0] <= c'9':
            add_digit(number, at[0])
            at += 1
        if at == start:
            return NULL
        number.exponent = -<int>min(at - start, <Py_ssize_t>1000)
    if at < end and (at[0] == c'e' or at[0] == c'E'):
        number.whole = False
        at += 1
        down = at < end and at[0] == c'-'
        if at < end and (at[0] == c'-' or at[0] == c'+'):
            at += 1
        start = at
        while at < end and c'0' <= at[0] <= c'9' and exponent < 1000:
            exponent = 10 * exponent + (at[0] - 48)
            at += 1
        if at == start:
            return NULL
        number.exponent += -exponent if down else exponent
    return at


cdef inline bint put(const Number *number, int dtype, unsigned char *out, uint64_t i, bint long_too) noexcept:
    cdef char *end
    cdef double value
    cdef int64_t signed
    if dtype == FP32 or dtype == FP64:
        if number.negative and number.whole and number.digits == 0:
            return False  # -0: the parser knows whether that is an integer
        if not number.long and number.digits <= EXACT_MAX and -EXPONENT_MAX <= number.exponent <= EXPONENT_MAX:
            value = <double>number.digits  # exact, as is the power: so one rounding, the right one
            value = value / POWERS[-number.exponent] if number.exponent < 0 else value * POWERS[number.exponent]
            if number.negative:
                value = -value
        elif long_too and not number.whole:
            value = PyOS_string_to_double(number.text, &end, NULL)  # ends at the comma, space or ] behind the number
            if isinf(value):
                return False
        else:
            return False
        if dtype == FP32:
            (<float *>out)[i] = <float>value
        else:
            (<double *>out)[i] = value
        return True
    if not number.whole or number.long:
        return False
    if dtype >= INT8:
        signed = -<int64_t>number.digits if number.negative else <int64_t>number.digits
        return put_signed(signed, dtype, out, i)
    return not number.negative and put_unsigned(number.digits, dtype, out, i)


cdef inline bint put_signed(int64_t value, int dtype, unsigned char *out, uint64_t i) noexcept:
    if dtype == INT64:
        (<int64_t *>out)[i] = value
    elif dtype == INT32:
        (<int32_t *>out)[i] = <int32_t>value
        return value == <int32_t>value
    elif dtype == INT16:
        (<int16_t *>out)[i] = <int16_t>value
        return value == <int16_t>value
    else:
        (<int8_t *>out)[i] = <int8_t>value
        return value == <int8_t>value
    return True


cdef inline bint put_unsigned(uint64_t value, int dtype, unsigned char *out, uint64_t i) noexcept:
    if dtype == UINT64:
        (<uint64_t *>out)[i] = value
    elif dtype == UINT32:
        (<uint32_t *>out)[i] = <uint32_t>value
        return value == <uint32_t>value
    elif dtype == UINT16:
        (<uint16_t *>out)[i] = <uint16_t>value
        return value == <uint16_t>value
    else:
        (<uint8_t *>out)[i] = <uint8_t>value
        return value == <uint8_t>value
    return True
