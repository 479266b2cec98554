"""Classification: the best classes of an output as text.  Layer 2 (wire).

A heap of the best so far: one pass over the values, whatever the number of classes asked for.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy
from tisfast.wire.signature cimport (
    FP32, FP64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, TensorSpec, item_bytes)
from tisfast.wire.text_buffer cimport TextBuffer

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.types import BY_CODE

cdef uint64_t CLASSES_MAX = limits.CLASSES_MAX

cdef enum:
    VALUE_BYTES = 352  # the longest double with six decimals has 317 characters

ctypedef fused number:
    uint8_t
    uint16_t
    uint32_t
    uint64_t
    int8_t
    int16_t
    int32_t
    int64_t
    float
    double


cdef bytes best_classes(
        TensorSpec spec, int dtype, const unsigned char *data, uint64_t rows, uint64_t elements, uint64_t classes):
    cdef uint32_t item = item_bytes(dtype)
    cdef TextBuffer text
    cdef uint32_t *best
    cdef unsigned char *row
    cdef uint64_t i
    if dtype not in (UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP32, FP64):
        raise BadRequest(
            f"class result not available for output due to unsupported type '{BY_CODE[dtype].wire}' (output '{spec.name}')")
    if elements > CLASSES_MAX:
        raise BadRequest(
            f"classification output tensor too large (output '{spec.name}' has {elements} elements a batch entry, "
            f"{CLASSES_MAX} is the limit)")
    text = TextBuffer(<Py_ssize_t>(64 + 24 * classes))
    row = <unsigned char *>PyMem_Malloc(elements * item + 8 + 4 * classes)
    if row == NULL:
        raise MemoryError()
    best = <uint32_t *>(row + (elements * item + 7) // 8 * 8)
    try:
        for i in range(rows):
            memcpy(row, data + i * elements * item, elements * item)  # so that it is aligned
            put_row(text, spec, dtype, row, <uint32_t>elements, best, <uint32_t>classes)
    finally:
        PyMem_Free(row)
    return text.value()


cdef int put_row(
    TextBuffer text, TensorSpec spec, int dtype, const unsigned char *row, uint32_t n, uint32_t *best, uint32_t k) except -1:
    if dtype == FP32:
        return put_best[float](text, spec, <const float *>row, n, best, k)
    if dtype == FP64:
        return put_best[double](text, spec, <const double *>row, n, best, k)
    if dtype == INT64:
        return put_best[int64_t](text, spec, <const int64_t *>row, n, best, k)
    if dtype == INT32:
        return put_best[int32_t](text, spec, <const int32_t *>row, n, best, k)
    if dtype == INT16:
        return put_best[int16_t](text, spec, <const int16_t *>row, n, best, k)
    if dtype == INT8:
        return put_best[int8_t](text, spec, <const int8_t *>row, n, best, k)
    if dtype == UINT64:
        return put_best[uint64_t](text, spec, <const uint64_t *>row, n, best, k)
    if dtype == UINT32:
        return put_best[uint32_t](text, spec, <const uint32_t *>row, n, best, k)
    if dtype == UINT16:
        return put_best[uint16_t](text, spec, <const uint16_t *>row, n, best, k)
    return put_best[uint8_t](text, spec, <const uint8_t *>row, n, best, k)


cdef int put_best(
    TextBuffer text, TensorSpec spec, const number *values, uint32_t n, uint32_t *best, uint32_t k) except -1:
    cdef char written[VALUE_BYTES]
    cdef uint32_t i
    cdef int length
    select(values, n, best, k)
    for i in range(k):
        if number is float or number is double:
            length = snprintf(written, VALUE_BYTES, "%f:%u", <double>values[best[i]], best[i])
        elif number is uint64_t:
            length = snprintf(written, VALUE_BYTES, "%llu:%u", <unsigned long long>values[best[i]], best[i])
        else:
            length = snprintf(written, VALUE_BYTES, "%lld:%u", <long long>values[best[i]], best[i])
        put_string(text, written, <uint32_t>length, spec.labels[best[i]] if best[i] < len(spec.labels) else b"")
    return 0


# An empty label is none.
cdef int put_string(TextBuffer text, const char *written, uint32_t length, bytes label) except -1:
    cdef uint32_t whole = length + (<uint32_t>PyBytes_GET_SIZE(label) + 1 if label else 0)
    text.put(&whole, 4)
    text.put(written, length)
    if label:
        text.put(b":", 1)
        text.put(PyBytes_AS_STRING(label), PyBytes_GET_SIZE(label))
    return 0


# Greater first; among equals the lower index, as Triton's sort does for few elements; NaN last.
cdef inline bint better(const number *values, uint32_t a, uint32_t b) noexcept nogil:
    if values[a] > values[b]:
        return True
    if values[b] > values[a]:
        return False
    if (values[a] != values[a]) != (values[b] != values[b]):
        return values[b] != values[b]
    return a < b


# heap[0] is the worst of the k kept.
cdef inline void sink(const number *values, uint32_t *heap, uint32_t k, uint32_t at) noexcept nogil:
    cdef uint32_t child, moving = heap[at]
    while 2 * at + 1 < k:
        child = 2 * at + 1
        if child + 1 < k and better(values, heap[child], heap[child + 1]):
            child += 1
        if not better(values, moving, heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moving


# The indices of the k best of n values, best first, into `best`.
cdef void select(const number *values, uint32_t n, uint32_t *best, uint32_t k) noexcept nogil:
    cdef uint32_t i, worst
    if k == 0:
        return
    for i in range(k):
        best[i] = i
    for i in range(k // 2, 0, -1):
        sink(values, best, k, i - 1)
    for i in range(k, n):
        if better(values, i, best[0]):
            best[0] = i
            sink(values, best, k, 0)
    for i in range(k - 1, 0, -1):  # the worst to the end, again and again
        worst = best[0]
        best[0] = best[i]
        best[i] = worst
        sink(values, best, i, 0)
