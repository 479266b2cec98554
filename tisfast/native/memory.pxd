# Arenas and the blocks in them.  Layer 1 (native).
from libc.stdint cimport uint64_t

cdef extern from "tf_arena.h":
    struct tf_arena:
        pass

cdef class Arena:
    """One memory file, mapped whole.  Owned here (`blocks` set) or by a worker (`blocks` NULL)."""
    cdef readonly int fd            # owned; -1 once closed
    cdef readonly uint64_t nbytes
    cdef unsigned char* base
    cdef tf_arena* blocks
    # A block of at least nbytes; raises Unavailable when the arena is full.
    cdef Block take(self, uint64_t nbytes)
    # What a block of nbytes adds to `used_bytes`.
    cdef uint64_t cost(self, uint64_t nbytes) noexcept
    # Called by Block.__dealloc__ only; never raises, a stale handle is counted in `stale`.
    cdef void give(self, uint64_t handle) noexcept
    cdef readonly uint64_t stale
    cdef readonly str label
    cdef readonly uint64_t use_bytes_max
    # A lease on a block that is already out (a worker's answer).
    cdef Block lease(self, uint64_t handle, uint64_t nbytes)

cdef class Block:
    """A lease on one block: the memory is given back when the last reference to this object is gone.

    Supports the buffer protocol (writable, uint8, `nbytes` long), so a transport or memoryview that holds the buffer
    holds the lease.  `nbytes` is what was asked for.
    """
    cdef Arena arena
    cdef readonly uint64_t handle
    cdef unsigned char* data        # borrowed from the arena; valid while this object lives
    cdef readonly uint64_t offset   # of data in the arena
    cdef readonly uint64_t nbytes

cdef class View:
    """A buffer over part of something that `owner` keeps alive; may be aimed again while nobody has it exported."""
    cdef object owner
    cdef unsigned char* data
    cdef Py_ssize_t nbytes
    cdef bint writable
    cdef int exports
    # Raises BufferError while exported.
    cdef int aim(self, object owner, unsigned char* data, Py_ssize_t nbytes, bint writable) except -1
