"""Answers as the response cache keeps them.  Layer 2 (wire).

    StoredHead | signature, padded to 8 | per output: offset, bytes | parameters, padded to 64 | tensors, each padded to 64

Offsets count from the start, so the bytes mean the same wherever they lie.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Malloc
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset
from tisfast.native.memory cimport Block
from tisfast.wire.align cimport align64
from tisfast.wire.record cimport Answer, AnswerLayout, InferInput, OutputRef, layout_of
from tisfast.wire.signature cimport BYTES, ModelSignature, TensorSpec

from tisfast import limits, tuning
from tisfast.errors import Internal

cdef struct StoredHead:
    uint32_t magic, count
    uint32_t signature_bytes, parameters_bytes

cdef struct Place:
    uint64_t offset, nbytes

cdef uint32_t MAGIC = 0x31414654  # "TFA1"
cdef uint32_t PARAMETERS_BYTES_MAX = limits.ANSWER_PARAMETERS_BYTES_MAX
cdef uint32_t OUTPUTS_MAX = limits.OUTPUTS_MAX
cdef uint64_t LOOP_COPY_BYTES_MAX = tuning.LOOP_COPY_BYTES_MAX


cdef inline uint64_t align8(uint64_t n) noexcept:
    return (n + 7) & ~<uint64_t>7


# Where the table of places begins.
cdef inline uint64_t places_at(uint64_t signature_bytes) noexcept:
    return sizeof(StoredHead) + align8(signature_bytes)


# Where the tensors begin.
cdef inline uint64_t tensors_at(uint64_t signature_bytes, uint64_t count, uint64_t parameters_bytes) noexcept:
    return align64(places_at(signature_bytes) + count * sizeof(Place) + parameters_bytes)


cdef uint64_t stored_bytes(Answer answer) noexcept:
    cdef uint64_t total = tensors_at(
        PyBytes_GET_SIZE(answer.signature), answer.count, PyBytes_GET_SIZE(answer.parameters))
    cdef int i
    for i in range(answer.count):
        total += align64(answer.outputs[i].nbytes)
    return total


cdef void store(Answer answer, unsigned char *at) noexcept:
    cdef StoredHead *head = <StoredHead *>at
    cdef Place *places
    cdef const unsigned char *data
    cdef uint64_t offset, nbytes
    cdef int i
    head.magic = MAGIC
    head.count = <uint32_t>answer.count
    head.signature_bytes = <uint32_t>PyBytes_GET_SIZE(answer.signature)
    head.parameters_bytes = <uint32_t>PyBytes_GET_SIZE(answer.parameters)
    offset = tensors_at(head.signature_bytes, head.count, head.parameters_bytes)
    memset(at + sizeof(StoredHead), 0, offset - sizeof(StoredHead))  # paddings: nothing of what lay here before
    memcpy(at + sizeof(StoredHead), PyBytes_AS_STRING(answer.signature), head.signature_bytes)
    places = <Place *>(at + places_at(head.signature_bytes))
    memcpy(places + head.count, PyBytes_AS_STRING(answer.parameters), head.parameters_bytes)
    for i in range(answer.count):
        data, nbytes = answer.outputs[i].data, answer.outputs[i].nbytes
        places[i] = [offset, nbytes]
        if nbytes > LOOP_COPY_BYTES_MAX:
            with nogil:  # by a thread beside the loop, which holds the answer
                memcpy(at + offset, data, nbytes)
        else:
            memcpy(at + offset, data, nbytes)
        memset(at + offset + nbytes, 0, align64(nbytes) - nbytes)
        offset += align64(nbytes)


cdef broken(InferInput request, str what):
    return Internal(
        f"what the response cache keeps for model '{request.model.name}' version {request.model.version} is no answer of "
        f"it: {what}")


cdef Answer restore(InferInput request, Block block):
    cdef Answer answer = Answer.__new__(Answer)
    cdef StoredHead head
    cdef uint64_t start
    if block.nbytes < sizeof(StoredHead):
        raise broken(request, f"it has {block.nbytes} bytes")
    memcpy(&head, block.data, sizeof(StoredHead))
    if head.magic != MAGIC or head.count > OUTPUTS_MAX or head.parameters_bytes > PARAMETERS_BYTES_MAX:
        raise broken(request, f"it starts with {<bytes>block.data[:16]!r}")
    start = places_at(head.signature_bytes)
    if tensors_at(head.signature_bytes, head.count, head.parameters_bytes) > block.nbytes:
        raise broken(request, f"its head asks for more than its {block.nbytes} bytes")
    answer.input = request
    answer.block = block
    answer.signature = PyBytes_FromStringAndSize(<char *>block.data + sizeof(StoredHead), head.signature_bytes)
    answer.layout = layout_of(request.model, answer.signature, head.count)
    answer.parameters = PyBytes_FromStringAndSize(
        <char *>block.data + start + head.count * sizeof(Place), head.parameters_bytes)
    fill_outputs(answer, <const Place *>(block.data + start))
    return answer


cdef int fill_outputs(Answer answer, const Place *places) except -1:
    cdef AnswerLayout layout = answer.layout
    cdef InferInput request = answer.input
    cdef Block block = answer.block
    cdef OutputRef *out
    cdef Place place
    cdef int i
    answer.outputs = <OutputRef *>PyMem_Malloc((layout.count or 1) * sizeof(OutputRef))
    if answer.outputs == NULL:
        raise MemoryError()
    memcpy(answer.outputs, layout.outputs, layout.count * sizeof(OutputRef))
    answer.count = layout.count
    for i in range(layout.count):
        out = &answer.outputs[i]
        place = places[i]
        name = (<TensorSpec>request.model.outputs[out.index]).name
        if place.offset > block.nbytes or place.nbytes > block.nbytes - place.offset:
            raise broken(request, f"output '{name}' at {place.offset}, {place.nbytes} bytes, of {block.nbytes}")
        if place.nbytes != out.nbytes and (out.dtype != BYTES or place.nbytes < out.nbytes or out.nbytes == 0):
            raise broken(request, f"output '{name}' has {place.nbytes} bytes, its shape asks for {out.nbytes}")
        out.data = block.data + place.offset
        out.nbytes = place.nbytes
    return 0


def pack(Answer answer) -> bytes:
    """The stored form of an answer."""
    cdef uint64_t nbytes = stored_bytes(answer)
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>nbytes)
    store(answer, <unsigned char *>PyBytes_AS_STRING(packed))
    return packed


def unpack(InferInput request, Block block) -> Answer:
    """`restore`, for tests and figures."""
    return restore(request, block)
