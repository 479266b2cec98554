"""Calls of other models for tests in Python: a port that records, and what an instance says as functions.  Layer 3 (engine)."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tisfast.engine.calls cimport CallPort, Calls, ReplyMark
from tisfast.engine.core cimport InferRequest, Link
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.native.memory cimport Arena, Block, MemoryFile
from tisfast.wire.record cimport InferInput

import struct


cdef class FakePort(CallPort):
    """The way back to a FakeLink, whose requests' tickets are their places in the batch that it executes.  sent: (number, status, text or outputs, final, answer) each; outputs are name, data
    type code, shape, share id and bytes; `room`: how many more it takes."""

    cdef public list sent
    cdef public object room
    cdef public list shared      # files that it was told of, by share id from 1 on
    cdef public MemoryFile lent_memory
    cdef object link
    cdef Arena arena

    def __cinit__(self, Link link, Arena arena):
        self.link = link
        self.arena = arena
        self.sent = []
        self.shared = []
        self.room = 1 << 30

    cdef InferRequest request_of(self, uint64_t ticket):
        batch = self.batch_of(ticket)
        return batch[ticket] if batch else None

    cdef InferInput input_of(self, uint64_t ticket):
        cdef InferRequest request = self.request_of(ticket)
        return None if request is None else request.input

    cdef object batch_of(self, uint64_t ticket):
        batches = self.link.dispatched
        return batches[0] if batches and ticket < <uint64_t>len(batches[0]) else ()

    cdef uint16_t share_of(self, MemoryFile file) except? 0:
        if file not in self.shared:
            self.shared.append(file)
        return <uint16_t>(self.shared.index(file) + 1)

    cdef MemoryFile lent(self):
        return self.lent_memory

    cdef bint send(self, ReplyMark *mark) except -1:
        if self.room <= 0:
            return False
        self.room -= 1
        raw = (<bytes>(self.arena.base + mark.offset)[:mark.nbytes])
        what = raw.decode() if mark.status else self._outputs(raw)
        self.sent.append((mark.call, mark.status, what, mark.final, mark.answer))
        return True

    def _outputs(self, raw):
        if not raw:
            return []
        signature_bytes, count, _, _, _ = struct.unpack_from("<IHHII", raw)
        at, found = 16, []
        for i in range(count):
            dtype, rank, name_bytes, _ = struct.unpack_from("<BBHI", raw, at)
            shape = struct.unpack_from(f"<{rank}q", raw, at + 8)
            at += 8 + 8 * rank
            name = raw[at:at + name_bytes].decode()
            at += name_bytes + -name_bytes % 8
            place, nbytes = struct.unpack_from("<QQ", raw, 16 + signature_bytes + 16 * i)
            file = self.shared[(place >> 48) - 1] if place >> 48 else self.arena
            found.append((name, dtype, shape, place >> 48, file_bytes(file, place & ((1 << 48) - 1), nbytes)))
        return found


cdef bytes file_bytes(MemoryFile file, uint64_t offset, uint64_t nbytes):
    cdef bytes found = bytes(nbytes)
    file.copy_out(offset, <char *>found, nbytes)
    return found


def calls_of(Link link, ModelRuntime runtime, FakePort port, registry) -> Calls:
    """The calls of one instance, which its link knows."""
    calls = Calls(link, runtime, port, registry)
    link.calls = calls
    return calls


def call(Calls calls, uint64_t number, Arena output, bytes record) -> None:
    """The instance says: a call, whose record is this and lies in its output arena."""
    cdef Block block = output.take(<uint64_t>len(record))
    memcpy(block.data, <const char *>record, len(record))
    calls.call(number, block, <uint32_t>len(record))


def cancel(Calls calls, uint64_t number, bint forget=False) -> None:
    """The instance says: nobody needs the answer; forget: nor wants to hear of it."""
    calls.cancel(number, forget)


def done(Calls calls, uint64_t answer) -> None:
    """The instance says: it has let go of an answer."""
    calls.done(answer)


def flush(Calls calls) -> None:
    """There is room again."""
    calls.flush()


def close(Calls calls) -> None:
    """The worker is gone."""
    calls.close()
    calls.link.calls = None
