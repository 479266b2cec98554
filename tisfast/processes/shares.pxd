# What one worker has been told of other memory than its own arenas.  Layer 4 (processes).
from libc.stdint cimport uint16_t, uint32_t
from tisfast.native.channel cimport Channel
from tisfast.native.memory cimport MemoryFile

cdef class ShareTable:
    """The share ids of one worker, and the socket over which it learns what they stand for (workers/WIRE.md, Foreign
    tensors).  Ids are this worker's own: another one may know the same file by another."""
    cdef object socket, theirs, loop, outbox
    cdef str instance
    cdef Channel channel
    cdef dict open               # id: GPU memory (cuda_faces.DeviceMemory) that the worker may have open
    cdef dict names              # of these, an id: what texts call it
    cdef set closing             # of these, the ids that the worker was told to forget
    cdef object refused          # deque: (DeviceMemory.unclosed of memory that the worker's driver has not closed, why)
    cdef list unclosed           # (memory that the server lends, id) that the worker was told to close, and has not
    cdef public object end       # ends the worker
    cdef public object whose     # whose(): "instance m_0_0 of model 'm' (pid 7)"
    cdef public object uses      # see Holder
    cdef dict shares             # id() of a MemoryFile: (its id here, weak reference to it), longest unused first
    cdef object free             # deque of ids that were given back
    cdef uint16_t unused         # ids from here on were never given out
    cdef bint sending, waiting, closed
    cdef bint short              # the last file could not be passed: the server has too many descriptors
    cdef bint full               # the last file got no id: the worker has all of them
    # The worker's id for this file, which it is told of when it is new.  What cannot be passed has an id all the same: the
    # worker refuses the request.
    cdef uint16_t id_of(self, MemoryFile file) except 0
    cdef int _readable_copy(self, int fd) except -2
    cdef int _tell(self, bytes message, int fd) except -1
    cdef uint16_t _new_id(self) except 0
