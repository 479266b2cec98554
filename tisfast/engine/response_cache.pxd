# Answers that are kept and given again.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.histogram cimport Histogram
from tisfast.native.memory cimport Arena, Block
from tisfast.wire.record cimport Answer, InferInput

cdef class LocalStore:
    """Answers in an arena of this process, the least recently used going first.  `used_bytes` never exceeds `size_bytes`;
    an answer that is evicted while it is being sent counts until it is sent."""
    cdef readonly uint64_t size_bytes
    cdef readonly uint64_t evictions
    cdef readonly uint64_t hits, misses  # of all models
    cdef readonly int64_t lookup_ns, insertion_ns
    cdef readonly uint64_t refused       # answers that were too large, or found no room
    cdef readonly Arena arena
    cdef object entries                  # OrderedDict of Block by key, least recently used first
    cdef uint64_t written                # since free pages were last given back
    # The stored answer, which is the most recently used one from now on; None.
    cdef Block find(self, bytes key)
    # Copy an answer; what is kept by that key already stays.  False when there is no room.
    cdef bint keep(self, bytes key, Answer answer) except -1
    # The two halves of it, for answers that are copied meanwhile: room; None when there is none, or need of none.
    cdef Block begin_keeping(self, bytes key, uint64_t nbytes)
    cdef int keep_copied(self, bytes key, Block block, uint64_t nbytes) except -1
    cdef uint64_t used(self) except? 0xFFFFFFFFFFFFFFFF
    cdef Block room_for(self, uint64_t nbytes)
    cdef bint evict(self) except -1

cdef class ModelCache:
    """The kept answers of one model version."""
    cdef readonly Histogram hit_times, miss_times
    cdef LocalStore local                # one of these two: answers at once,
    cdef readonly object remote          # or later (a RemoteStore of response_cache.pyi)
    cdef object salted                   # hash object that has seen what makes this version's keys its own
    cdef bytes label
    cdef object threads                  # or None: threads(work, done) does work() beside the loop, then done(its result)
    # None: answers to this request cannot be kept.
    cdef bytes key_of(self, InferInput request)
    # A thread is to make it, and `done` gets it.
    cdef bint is_long(self, InferInput request) noexcept
    cdef int key_later(self, InferInput request, object done) except -1
    # Of a local store.
    cdef Answer find(self, bytes key, InferInput request)
    # Of a remote store: what came back, in a block of `arena`; None for nothing and for what is no answer.
    cdef Answer unpacked(self, object value, InferInput request, Arena arena)
    # A thread is to copy it, and `done` gets the block with it, or None.
    cdef bint is_long_value(self, object value) noexcept
    cdef int copy_later(self, bytes value, Arena arena, object done) except -1
    # And this is what it says, of a block.
    cdef Answer restored(self, Block block, InferInput request)
    cdef int _keep_later(self, bytes key, Answer answer, uint64_t nbytes) except -1
    # Copy a good answer, or send it away.
    cdef int keep(self, bytes key, Answer answer) except -1
    # A lookup that found an answer; one that did not, and what keeping the answer took.
    cdef void count_hit(self, int64_t lookup_ns) noexcept
    cdef void count_miss(self, int64_t lookup_ns, int64_t insertion_ns) noexcept
