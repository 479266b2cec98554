# Arenas and the blocks in them.  Layer 1 (native).
from libc.stdint cimport int64_t, uint64_t

cdef extern from "tf_arena.h":
    struct tf_arena:
        pass

cdef class MemoryFile:
    """Part of a file that is mapped here and may be shown to workers: bytes [begin, begin + nbytes) of it.

    Can be referred to weakly: who has told a worker of it tells that it is gone."""
    cdef readonly int fd            # -1: none
    cdef readonly uint64_t begin
    cdef readonly uint64_t nbytes
    cdef readonly bint guarded      # not ours: its owner may truncate it, so its bytes are touched by copy_out only
    cdef readonly int device        # -1: host memory; else the GPU whose memory it is: guarded, without `fd` and `base`
    cdef unsigned char* base        # of byte `begin`
    cdef bint shown                 # to a worker, as a whole: what goes must leave no pages behind
    cdef object __weakref__
    # Copies bytes [offset, offset + nbytes) of the file, which must lie within the mapping.  Raises TisError when they are gone.
    cdef int copy_out(self, uint64_t offset, void *to, uint64_t nbytes) except -1
    cdef inline unsigned char *at(self, uint64_t offset) noexcept:
        return self.base + (offset - self.begin)
    cdef inline bint holds(self, uint64_t offset, uint64_t nbytes) noexcept:
        return self.begin <= offset and nbytes <= self.nbytes and offset - self.begin <= self.nbytes - nbytes

cdef class Arena(MemoryFile):
    """One memory file, mapped whole and owned.  Its blocks are handed out here (`blocks` set) or by a worker (NULL)."""
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
    cdef set promises               # of blocks that are being received; None until there is one
    cdef bint _make_room(self, uint64_t nbytes) except -1
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

cdef class Promise:
    """A block of an arena whose content is still to come.

    A client pays nothing for a promise, so one that comes too slowly gives way when others find no room: `owner.give_way()`
    drops the block and tells the client.
    """
    cdef Arena arena
    cdef object owner
    cdef uint64_t nbytes, come
    cdef int64_t began_ns
    cdef int withdraw(self) except -1    # all has come, or the client has gone; may be called twice

cdef Promise promise(Arena arena, object owner, uint64_t nbytes, uint64_t come)

cdef class BufferView:
    """A buffer over part of something that `owner` keeps alive; may be aimed again while it is not exported."""
    cdef object owner
    cdef unsigned char* data
    cdef Py_ssize_t nbytes
    cdef bint writable
    cdef int exports
    # Raises BufferError while exported.
    cdef int aim(self, object owner, unsigned char* data, Py_ssize_t nbytes, bint writable) except -1
