"""Call and reply records; see call_record.pxd.  Layer 2 (wire).

Nothing that a worker wrote is believed: the record is copied out of shared memory first.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from tisfast.native.memory cimport Arena, Block
from tisfast.wire.align cimport align64
from tisfast.wire.tensors cimport SHARE_SHIFT, Tensor

from tisfast import limits
from tisfast.errors import Internal

cdef struct CallHead:
    uint32_t signature_bytes
    uint16_t count, flags
    uint64_t timeout_us, correlation, parent, trace
    uint32_t id_bytes, parameters_bytes, correlation_bytes, zero

cdef struct ModelEntry:
    uint16_t name_bytes, requested
    uint32_t zero
    int64_t version

cdef struct TensorEntry:
    uint8_t dtype, rank
    uint16_t name_bytes
    uint32_t zero

cdef struct ReplyHead:
    uint32_t signature_bytes
    uint16_t count, zero
    uint32_t parameters_bytes, zeros

cdef uint32_t CALL_BYTES_MAX = limits.CALL_RECORD_BYTES_MAX
cdef uint32_t RANK_MAX = limits.TENSOR_RANK_MAX
cdef Py_ssize_t PLANS_MAX = limits.CALL_PLANS_MAX


cdef inline uint64_t align8(uint64_t n) noexcept:
    return (n + 7) & ~<uint64_t>7


cdef lied(str what):
    return Internal(f"a call that an instance made cannot be read: {what}")


cdef class CallPlan:
    """See call_record.pxd."""


cdef class CallRecord:
    """See call_record.pxd."""

    def place(self, Py_ssize_t i) -> tuple:
        """Source, owner, place and bytes of input i, for tests."""
        if not 0 <= i < self.plan.count:
            raise IndexError(i)
        return self.places[i].source, self.places[i].owner, self.places[i].place, self.places[i].nbytes


cdef class Cursor:
    """Reads forward within some bytes; raises Internal at their end."""

    cdef const unsigned char *at
    cdef const unsigned char *end

    cdef const unsigned char *take(self, uint64_t nbytes, str what) except NULL:
        cdef const unsigned char *found = self.at
        if nbytes > <uint64_t>(self.end - self.at):
            raise lied(f"{what} needs {nbytes} bytes, {self.end - self.at} are left")
        self.at += nbytes
        return found

    cdef str text(self, uint64_t nbytes, str what):
        cdef const unsigned char *raw = self.take(nbytes, what)
        try:
            return raw[:nbytes].decode("utf-8")
        except UnicodeDecodeError as error:
            raise lied(f"{what} is not UTF-8: {error}") from None


cdef CallRecord read_call(const unsigned char *data, uint32_t nbytes, dict plans):
    cdef CallRecord call = CallRecord.__new__(CallRecord)
    cdef Cursor cursor = Cursor.__new__(Cursor)
    cdef const CallHead *head
    cdef bytes signature
    if nbytes > CALL_BYTES_MAX:
        raise lied(f"its record has {nbytes} bytes, {CALL_BYTES_MAX} is the limit")
    call.raw = PyBytes_FromStringAndSize(<const char *>data, nbytes)
    cursor.at = <const unsigned char *>PyBytes_AS_STRING(call.raw)
    cursor.end = cursor.at + nbytes
    head = <const CallHead *>cursor.take(sizeof(CallHead), "its head")
    signature = (<const char *>cursor.take(head.signature_bytes, "its signature"))[:head.signature_bytes]
    call.plan = plan_of(signature, head.count, plans)
    call.places = <const CallPlace *>cursor.take(sizeof(CallPlace) * call.plan.count, "the places of its inputs")
    call.flags = head.flags
    call.timeout_us = head.timeout_us
    call.parent = head.parent
    call.trace = head.trace
    call.id = cursor.text(head.id_bytes, "its request id")
    call.parameters = (<const char *>cursor.take(head.parameters_bytes, "its parameters"))[:head.parameters_bytes]
    call.correlation = head.correlation
    if head.flags & CALL_CORRELATION_TEXT:
        call.correlation = cursor.text(head.correlation_bytes, "its correlation id")
    return call


cdef CallPlan plan_of(bytes signature, uint16_t count, dict plans):
    cdef CallPlan plan = plans.get(signature)
    if plan is None:
        plan = new_plan(signature)
        if len(plans) >= PLANS_MAX:
            plans.clear()
        plans[signature] = plan
    if plan.count != count:
        raise lied(f"it says {count} inputs and lists {plan.count}")
    return plan


cdef CallPlan new_plan(bytes signature):
    cdef CallPlan plan = CallPlan.__new__(CallPlan)
    cdef Cursor cursor = Cursor.__new__(Cursor)
    cdef const unsigned char *begin = <const unsigned char *>PyBytes_AS_STRING(signature)
    cdef const ModelEntry *model
    cdef uint16_t i, length
    cursor.at = begin
    cursor.end = begin + PyBytes_GET_SIZE(signature)
    model = <const ModelEntry *>cursor.take(sizeof(ModelEntry), "the head of its signature")
    plan.model = cursor.text(model.name_bytes, "the model's name")
    plan.version = "" if model.version == -1 else str(model.version)
    plan.requested = [] if model.requested else None
    for i in range(model.requested):
        memcpy(&length, cursor.take(2, "the length of an output's name"), 2)
        plan.requested.append(cursor.text(length, "an output's name"))
    cursor.take(align8(<uint64_t>(cursor.at - begin)) - <uint64_t>(cursor.at - begin), "padding")
    plan.names, plan.dtypes, plan.shapes = [], [], []
    while cursor.at < cursor.end:
        add_input(plan, cursor)
    plan.count = len(plan.names)
    return plan


cdef int add_input(CallPlan plan, Cursor cursor) except -1:
    cdef const TensorEntry *entry = <const TensorEntry *>cursor.take(sizeof(TensorEntry), "an input")
    cdef const int64_t *shape
    cdef int i
    if entry.rank > RANK_MAX:
        raise lied(f"an input has {entry.rank} dimensions, {RANK_MAX} is the limit")
    shape = <const int64_t *>cursor.take(8 * entry.rank, "an input's shape")
    plan.dtypes.append(entry.dtype)
    plan.shapes.append(tuple([shape[i] for i in range(entry.rank)]))
    plan.names.append(cursor.text(entry.name_bytes, "an input's name"))
    cursor.take(align8(entry.name_bytes) - entry.name_bytes, "padding")
    return 0


# ---- replies

cdef Block write_reply(Arena arena, list tensors, list shares, bytes parameters, uint32_t *record_bytes):
    cdef bytes signature = reply_signature(tensors)
    cdef uint64_t places_at = sizeof(ReplyHead) + PyBytes_GET_SIZE(signature)
    cdef uint64_t parameters_at = places_at + 16 * len(tensors)
    cdef uint64_t end = align64(parameters_at + PyBytes_GET_SIZE(parameters))
    cdef uint64_t need = end
    cdef ReplyHead head
    cdef Tensor tensor
    cdef Block block
    cdef uint64_t place[2]
    cdef Py_ssize_t i
    for i in range(len(tensors)):
        if shares[i] == 0:
            need += align64((<Tensor>tensors[i]).nbytes)
    block = arena.take(need)
    memset(&head, 0, sizeof(ReplyHead))
    head.signature_bytes = <uint32_t>PyBytes_GET_SIZE(signature)
    head.count = <uint16_t>len(tensors)
    head.parameters_bytes = <uint32_t>PyBytes_GET_SIZE(parameters)
    memcpy(block.data, &head, sizeof(ReplyHead))
    memcpy(block.data + sizeof(ReplyHead), PyBytes_AS_STRING(signature), PyBytes_GET_SIZE(signature))
    memcpy(block.data + parameters_at, PyBytes_AS_STRING(parameters), PyBytes_GET_SIZE(parameters))
    for i in range(len(tensors)):
        tensor = <Tensor>tensors[i]
        place[0] = (<uint64_t>shares[i] << SHARE_SHIFT) | tensor.offset
        place[1] = tensor.nbytes
        if shares[i] == 0:
            place[0] = block.offset + end
            tensor.read(0, block.data + end, tensor.nbytes)
            end += align64(tensor.nbytes)
        memcpy(block.data + places_at + 16 * i, place, 16)
    record_bytes[0] = <uint32_t>(parameters_at + PyBytes_GET_SIZE(parameters))
    return block


cdef bytes reply_signature(list tensors):
    cdef list parts = []
    cdef TensorEntry entry
    cdef Tensor tensor
    cdef const char *name
    cdef Py_ssize_t name_bytes
    cdef int64_t size
    for tensor in tensors:
        name = PyUnicode_AsUTF8AndSize(tensor.name, &name_bytes)
        entry.dtype = <uint8_t>tensor.dtype
        entry.rank = <uint8_t>len(tensor.shape)
        entry.name_bytes = <uint16_t>name_bytes
        entry.zero = 0
        parts.append(PyBytes_FromStringAndSize(<char *>&entry, sizeof(TensorEntry)))
        for size in tensor.shape:
            parts.append(PyBytes_FromStringAndSize(<char *>&size, 8))
        parts.append(PyBytes_FromStringAndSize(name, name_bytes))
        parts.append(bytes(align8(name_bytes) - name_bytes))
    return b"".join(parts)


def read(bytes record) -> CallRecord:
    """A call record; for tests."""
    return read_call(<const unsigned char *>PyBytes_AS_STRING(record), <uint32_t>PyBytes_GET_SIZE(record), {})


def reply(Arena arena, list tensors, list shares, bytes parameters=b"") -> tuple:
    """(block, bytes of its record) of write_reply(); for tests."""
    cdef uint32_t record_bytes = 0
    block = write_reply(arena, tensors, shares, parameters, &record_bytes)
    return block, record_bytes
