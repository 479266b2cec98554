"""A fingerprint by which the requests of one model version differ; see fingerprint.pxd.  Layer 2 (wire).

The request record (workers/WIRE.md) says all of it already, in one form: inputs in the order of the configuration, sizes
in front of what they count.  Only the places of the tensors, the id and what may change later are taken out.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.wire.record cimport LATE_FLAGS, InferInput, RequestHead
from tisfast.wire.tensors cimport ForeignInput

from tisfast.errors import Internal


cdef bint feed(InferInput request, object update) except -1:
    cdef const unsigned char *record = request.address(request.record_offset)
    cdef const RequestHead *head = <const RequestHead *>record
    cdef uint32_t before = <uint32_t>sizeof(RequestHead) + ((head.signature_bytes + 7) & ~<uint32_t>7)
    cdef uint32_t count = head.count, behind = head.parameters_bytes + head.correlation_bytes
    cdef uint64_t place[2]
    cdef unsigned char *data
    cdef uint32_t i
    update(head_bytes(record, before, count, behind))
    for i in range(count):
        memcpy(place, record + before + 16 * i, 16)
        if place[1]:
            data = address_of(request, i, place[0], place[1])
            if data == NULL:
                return False
            update(PyMemoryView_FromMemory(<char *>data, <Py_ssize_t>place[1], PyBUF_READ))
    return True


cdef uint64_t fed_bytes(InferInput request) noexcept:
    cdef const unsigned char *record = request.address(request.record_offset)
    cdef const RequestHead *head = <const RequestHead *>record
    cdef const unsigned char *at = record + sizeof(RequestHead) + ((head.signature_bytes + 7) & ~<uint32_t>7)
    cdef uint64_t place[2]
    cdef uint64_t total = 0
    cdef uint32_t i
    for i in range(head.count):
        memcpy(place, at + 16 * i, 16)
        total += place[1]
    return total


# Where input number i of the record lies here; NULL where it may change.
cdef unsigned char *address_of(InferInput request, uint32_t i, uint64_t offset, uint64_t nbytes) except? NULL:
    cdef ForeignInput foreign
    if request.foreign is not None:
        for foreign in request.foreign:
            if foreign.position == i:
                return foreign.tensor.address()
    if not request.owns(offset, nbytes):
        raise Internal(f"input {i} of a request of model '{request.model.name}' lies outside its blocks")
    return request.address(offset)


# Head and signature, bytes of each input, parameters and sequence id: everything small in one piece.
cdef bytes head_bytes(const unsigned char *record, uint32_t before, uint32_t count, uint32_t behind):
    cdef bytes small = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>before + 8 * count + behind)
    cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(small)
    cdef uint32_t id_bytes = (<const RequestHead *>record).id_bytes
    cdef uint32_t i
    memcpy(at, record, before)
    (<RequestHead *>at).id_bytes = 0
    (<RequestHead *>at).flags &= <uint16_t>~LATE_FLAGS
    at += before
    for i in range(count):
        memcpy(at + 8 * i, record + before + 16 * i + 8, 8)
    memcpy(at + 8 * count, record + before + 16 * count + id_bytes, behind)
    return small


def fingerprint(InferInput request, hash) -> bytes | None:
    """The digest of `hash` (hashlib's face) after the request, None for a request that has none; for tests and figures."""
    return hash.digest() if feed(request, hash.update) else None
