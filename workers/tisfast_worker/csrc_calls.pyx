# cython: binding=False
"""Calls of csrc that the hot path makes, without ctypes' cost of some 0.7 us each: native.Library takes them from here
where this module fits the interpreter.  The same for memory: `struct` and slices of an mmap ask for its buffer at each
use, and touch four times as much.

csrc is compiled in, a second time beside the library.  What of it has state outside of its arguments, the guards of
tf_window.h, is here as a whole, so that the library's are not used at all.

Pointers are plain integers, as in native.py.  The GIL is kept, but for the two waits.
"""
import re
import struct

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "tf_ring.h" nogil:
    ctypedef struct channel_t "struct tf_channel":
        pass
    ctypedef struct ring_t "struct tf_ring":
        pass
    ctypedef struct bell_t "struct tf_bell":
        pass
    void* c_reserve "tf_ring_reserve"(channel_t*, ring_t*, uint32_t)
    void c_publish "tf_ring_publish"(ring_t*, uint32_t)
    void c_take "tf_ring_take"(ring_t*, uint32_t)
    uint64_t c_pending "tf_ring_pending"(const ring_t*)
    int c_submit_begin "tf_submit_begin"(channel_t*, uint32_t)
    int64_t c_worker_wait "tf_worker_wait"(channel_t*, int64_t, int64_t)
    int64_t c_reply_wait "tf_reply_wait"(channel_t*, int64_t, int64_t)
    int c_reply_took "tf_reply_took"(channel_t*, uint32_t)
    int c_bell_ring "tf_bell_ring"(channel_t*, const bell_t*, int)

cdef extern from "tf_output.h" nogil:
    ctypedef struct arena_t "struct tf_arena":
        pass
    uint64_t c_block_offset "tf_block_offset"(uint64_t)
    uint64_t c_output_take "tf_output_take"(arena_t*, uint64_t)
    uint64_t c_output_collect "tf_output_collect"(channel_t*, arena_t*)
    int c_arena_give "tf_arena_give"(arena_t*, uint64_t)
    uint64_t c_used_blocks "tf_arena_used_blocks"(const arena_t*)

cdef extern from "tf_window.h" nogil:
    int c_window_written "tf_window_written"(int, const void*, uint64_t)
    uint64_t c_faults "tf_faults"()
    int c_guard_add "tf_guard_add"(void*, uint64_t)
    int c_guard_arm "tf_guard_arm"()
    uint32_t c_guard_lost "tf_guard_lost"(int)
    void c_guard_remove "tf_guard_remove"(int)


def tf_ring_reserve(size_t channel, size_t ring, uint32_t ahead):
    """See tf_ring.h."""
    return <size_t>c_reserve(<channel_t*>channel, <ring_t*>ring, ahead)


def tf_ring_publish(size_t ring, uint32_t count):
    """See tf_ring.h."""
    c_publish(<ring_t*>ring, count)


def tf_ring_take(size_t ring, uint32_t count):
    """See tf_ring.h."""
    c_take(<ring_t*>ring, count)


def tf_submit_begin(size_t channel, uint32_t count):
    """See tf_ring.h."""
    return c_submit_begin(<channel_t*>channel, count)


def tf_ring_pending(size_t ring):
    """See tf_ring.h."""
    return c_pending(<ring_t*>ring)


def tf_worker_wait(size_t channel, int64_t spin_ns, int64_t timeout_ns):
    """See tf_ring.h.  Without the GIL."""
    cdef int64_t pending
    with nogil:
        pending = c_worker_wait(<channel_t*>channel, spin_ns, timeout_ns)
    return pending


def tf_reply_wait(size_t channel, int64_t spin_ns, int64_t timeout_ns):
    """See tf_ring.h.  Without the GIL."""
    cdef int64_t pending
    with nogil:
        pending = c_reply_wait(<channel_t*>channel, spin_ns, timeout_ns)
    return pending


def tf_reply_took(size_t channel, uint32_t count):
    """See tf_ring.h."""
    return c_reply_took(<channel_t*>channel, count)


def tf_bell_ring(size_t channel, size_t bell, int eventfd):
    """See tf_ring.h."""
    return c_bell_ring(<channel_t*>channel, <bell_t*>bell, eventfd)


def tf_output_take(size_t arena, uint64_t nbytes):
    """See tf_output.h."""
    return c_output_take(<arena_t*>arena, nbytes)


def tf_output_collect(size_t channel, size_t arena):
    """See tf_output.h."""
    return c_output_collect(<channel_t*>channel, <arena_t*>arena)


def tf_arena_give(size_t arena, uint64_t block):
    """See tf_arena.h."""
    return c_arena_give(<arena_t*>arena, block)


def tf_arena_used_blocks(size_t arena):
    """See tf_arena.h."""
    return c_used_blocks(<arena_t*>arena)


def tf_window_written(int pagemap, size_t base, uint64_t nbytes):
    """See tf_window.h."""
    return c_window_written(pagemap, <void*>base, nbytes)


def tf_faults():
    """See tf_window.h."""
    return c_faults()


def tf_guard_add(size_t base, uint64_t nbytes):
    """See tf_window.h."""
    return c_guard_add(<void*>base, nbytes)


def tf_guard_arm():
    """See tf_window.h."""
    return c_guard_arm()


def tf_guard_lost(int guard):
    """See tf_window.h."""
    return c_guard_lost(guard)


def tf_guard_remove(int guard):
    """See tf_window.h."""
    c_guard_remove(guard)


def block_offset(uint64_t block):
    """See native.py."""
    return c_block_offset(block)


cdef class RawMemory:
    """See native.py."""

    def __init__(self, memory):
        cdef Py_buffer view
        PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
        self._memory, self._base, self._nbytes = memory, <char*>view.buf, view.len
        PyBuffer_Release(&view)  # or it could never be closed

    cpdef bytes read(self, Py_ssize_t at, Py_ssize_t nbytes):
        """See native.py."""
        if at < 0 or nbytes < 0 or at > self._nbytes:
            return b""
        return PyBytes_FromStringAndSize(self._base + at, min(nbytes, self._nbytes - at))

    cpdef write(self, Py_ssize_t at, bytes raw):
        """See native.py."""
        if at < 0 or at > self._nbytes - len(raw):
            raise IndexError(f"{len(raw)} bytes at {at} of a memory of {self._nbytes}")
        memcpy(self._base + at, <char*>raw, len(raw))

    def fields(self, layout):
        """See native.py."""
        cdef Fields made = Fields()
        made._memory, made._nbytes = self, layout.size
        pairs = re.findall(rb"(\d*)([BHIQq])", layout.format.encode())
        made._codes = b"".join([code * int(count or 1) for count, code in pairs])
        return made


cdef class Fields:
    """See native.py."""

    cpdef tuple read(self, Py_ssize_t at):
        """See native.py."""
        cdef const char* place = self._place(at)
        cdef const char* codes = self._codes
        cdef Py_ssize_t count = len(self._codes), i
        cdef uint16_t two
        cdef uint32_t four
        cdef uint64_t eight
        cdef int64_t signed
        cdef tuple values = PyTuple_New(count)
        cdef object value
        for i in range(count):
            if codes[i] == c"Q":
                memcpy(&eight, place, 8)
                place += 8
                value = eight
            elif codes[i] == c"I":
                memcpy(&four, place, 4)
                place += 4
                value = four
            elif codes[i] == c"H":
                memcpy(&two, place, 2)
                place += 2
                value = two
            elif codes[i] == c"B":
                value = <uint8_t>place[0]
                place += 1
            else:
                memcpy(&signed, place, 8)
                place += 8
                value = signed
            Py_INCREF(value)
            PyTuple_SET_ITEM(values, i, value)
        return values

    cpdef write(self, Py_ssize_t at, tuple values):
        """See native.py."""
        cdef char* place = self._place(at)
        cdef const char* codes = self._codes
        cdef Py_ssize_t count = len(self._codes), i
        cdef uint16_t two
        cdef uint32_t four
        cdef uint64_t eight
        cdef int64_t signed
        if len(values) != count:
            raise struct.error(f"{count} values are meant, {len(values)} were given")
        for i in range(count):
            if codes[i] == c"Q":
                eight = values[i]
                memcpy(place, &eight, 8)
                place += 8
            elif codes[i] == c"I":
                four = values[i]
                memcpy(place, &four, 4)
                place += 4
            elif codes[i] == c"H":
                two = values[i]
                memcpy(place, &two, 2)
                place += 2
            elif codes[i] == c"B":
                place[0] = <char><uint8_t>values[i]
                place += 1
            else:
                signed = values[i]
                memcpy(place, &signed, 8)
                place += 8

    cdef char* _place(self, Py_ssize_t at) except NULL:
        if at < 0 or at > self._memory._nbytes - self._nbytes:
            raise struct.error(f"{self._nbytes} bytes at {at} of a memory of {self._memory._nbytes}")
        return self._memory._base + at
