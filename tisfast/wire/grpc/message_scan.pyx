"""The first look at a ModelInferRequest: where its parts lie.  Layer 2 (wire)."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.wire.grpc.cursor cimport FIELD, LEN, NO_FIELD, Cursor, Field, cursor, next_field
from tisfast.wire.grpc.values cimport broken

from tisfast.errors import BadRequest


@cython.freelist(16)
cdef class Message:
    """See message_scan.pxd."""

    def __dealloc__(self):
        if self.raws != self.at_hand:
            PyMem_Free(self.raws)

    cdef int note(self, const Field *field, uint64_t start, uint64_t end) except -1:
        if field.number == RAW_CONTENTS:
            if self.raw_count == 0:
                self.head_end = start
            if self.raw_count == self.raw_room:
                self.grow()
            self.raws[self.raw_count].at = field.data - self.data
            self.raws[self.raw_count].nbytes = field.nbytes
            self.raw_count += 1
            return 0
        if field.number > RAW_CONTENTS:
            return 0
        if self.raw_count:
            self.in_order = False
        if field.number == ID:
            self.in_order = self.in_order and self.id_text == NULL
            self.id_text = field.data
            self.id_bytes = field.nbytes
            self.id_start = start
            self.id_end = end
        return 0

    cdef int grow(self) except -1:
        cdef Raw *more = <Raw *>PyMem_Malloc(2 * self.raw_room * sizeof(Raw))
        if more == NULL:
            raise MemoryError()
        memcpy(more, self.raws, self.raw_count * sizeof(Raw))
        if self.raws != self.at_hand:
            PyMem_Free(self.raws)
        self.raws = more
        self.raw_room *= 2
        return 0


cdef Message scan(const unsigned char *data, uint64_t nbytes, uint32_t raws_max):
    cdef Message message = Message.__new__(Message)
    cdef Cursor c = cursor(data, nbytes)
    cdef Field field
    cdef uint64_t start = 0
    cdef uint64_t surplus = 0
    cdef int state
    message.data = data
    message.nbytes = nbytes
    message.raws = message.at_hand
    message.raw_room = RAWS_AT_HAND
    message.head_end = nbytes
    message.in_order = True
    while True:
        state = next_field(&c, &field)
        if state != FIELD:
            break
        if field.kind == LEN:
            if field.number == RAW_CONTENTS and message.raw_count == raws_max:
                surplus += 1
            else:
                message.note(&field, start, c.at - data)
        start = c.at - data
    if state != NO_FIELD:
        raise broken()
    if surplus:
        raise BadRequest(
            f"unexpected raw_input_contents: {raws_max + surplus} entries, and at most {raws_max} inputs can be given")
    return message
