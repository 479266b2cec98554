"""The response cache: what a request is known by, and answers kept in this process.  Layer 3 (engine).

A hit is not copied: fronts send from the cache's arena, and the lease on the block (native.memory.Block) keeps it there
until they have, whatever is evicted meanwhile.

Keys are 128 or 256 bits over everything that the model can see of a request (wire/fingerprint).  In this process that is
XXH3 with a secret seed; where servers share the answers, BLAKE2, whose collisions cannot be made.
"""

from collections import OrderedDict
from functools import partial
import hashlib

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from tisfast.engine.histogram cimport Histogram
from tisfast.native.memory cimport Arena, Block
from tisfast.wire.fingerprint cimport fed_bytes, feed
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.stored_answer cimport restore, store, stored_bytes

import xxhash

from tisfast import limits, tuning
from tisfast.errors import TisError, Unavailable
from tisfast.wire.stored_answer import pack

cdef uint64_t LOOP_COPY_BYTES_MAX = tuning.LOOP_COPY_BYTES_MAX
cdef uint64_t ENTRY_BYTES = limits.CACHE_ENTRY_BYTES
cdef uint64_t TRIM_SHARE = tuning.CACHE_TRIM_SHARE
cdef enum:
    SHARED_KEY_BYTES = 32


cdef class LocalStore:
    """See response_cache.pxd.  size_bytes: of everything that is kept; cap_bytes: address space, for what lies between blocks."""

    def __cinit__(self, uint64_t size_bytes, uint64_t cap_bytes=0):
        self.size_bytes = size_bytes
        self.arena = Arena("tisfast-cache", cap_bytes or 2 * size_bytes, size_bytes)
        self.entries = OrderedDict()

    def __len__(self):
        return len(self.entries)

    @property
    def used_bytes(self) -> int:
        """Bytes of all that is kept, and of what was and is still being sent."""
        return self.used()

    @property
    def keys(self) -> list:
        """Least recently used first."""
        return list(self.entries)

    cdef uint64_t used(self) except? 0xFFFFFFFFFFFFFFFF:
        return <uint64_t>self.arena.used_bytes + ENTRY_BYTES * <uint64_t>len(self.entries)

    cdef Block find(self, bytes key):
        cdef Block block = self.entries.get(key)
        if block is not None:
            self.entries.move_to_end(key)
        return block

    cdef bint keep(self, bytes key, Answer answer) except -1:
        cdef uint64_t nbytes = stored_bytes(answer)
        cdef Block block = self.begin_keeping(key, nbytes)
        if block is None:
            return key in self.entries
        store(answer, block.data)
        self.keep_copied(key, block, nbytes)
        return True

    cdef Block begin_keeping(self, bytes key, uint64_t nbytes):
        cdef Block block
        if key in self.entries:  # a request like it was executed at the same time
            self.entries.move_to_end(key)
            return None
        block = self.room_for(nbytes)
        if block is None:
            self.refused += 1
        return block

    cdef int keep_copied(self, bytes key, Block block, uint64_t nbytes) except -1:
        self.entries[key] = block
        self.written += nbytes
        if self.written > self.size_bytes // TRIM_SHARE and self.arena.resident_bytes > self.size_bytes:
            self.written = 0
            self.arena.trim()
        return 0

    cdef Block room_for(self, uint64_t nbytes):
        """A block, the least recently used answers evicted until it fits; None when it cannot."""
        cdef uint64_t cost
        if nbytes > self.size_bytes:
            return None
        cost = self.arena.cost(nbytes) + ENTRY_BYTES
        if cost > self.size_bytes:
            return None
        while self.used() + cost > self.size_bytes:
            if not self.evict():
                return None  # what is being sent takes it all
        while True:
            try:
                return self.arena.take(nbytes)
            except Unavailable:  # enough room, in pieces
                if not self.evict():
                    return None

    cdef bint evict(self) except -1:
        """Forget the least recently used answer; False when there is none."""
        if not self.entries:
            return False
        self.entries.popitem(False)
        self.evictions += 1
        return True


# What threads do.  They let go of what they were given before they tell: memory is given back by the loop alone, where
# `done` holds it until then.

def hashed(list holder):
    cdef ModelCache cache
    cdef InferInput request
    cache, request = holder
    holder.clear()
    return cache.key_of(request)


def packed(list holder):
    return pack(holder.pop())


def copied(list holder):
    cdef Answer answer
    cdef Block block
    answer, block = holder
    holder.clear()
    store(answer, block.data)
    return True


def filled(list holder):
    cdef Block block
    cdef bytes value
    cdef const char *data
    cdef size_t nbytes
    block, value = holder
    holder.clear()
    data, nbytes = PyBytes_AS_STRING(value), <size_t>PyBytes_GET_SIZE(value)
    with nogil:
        memcpy(block.data, data, nbytes)
    return True


def told(done, held, result):
    done(result)


def handed(done, held, result):
    done(held if result else None)


cdef class ModelCache:
    """See response_cache.pxd.  store: LocalStore or a remote one; salt: what makes the keys of this version its own: random where
    only this process keeps answers, a digest of what the version is where others do; seed: of the local keys' hash;
    label: with which remote keys begin; threads: see response_cache.pxd."""

    def __cinit__(self, store, bytes salt, uint64_t seed=0, bytes label=b"", threads=None):
        self.label = label
        self.threads = threads
        if isinstance(store, LocalStore):
            self.local = store
            self.salted = xxhash.xxh3_128(salt, seed=seed)
        else:
            self.remote = store
            self.salted = hashlib.blake2b(salt, digest_size=SHARED_KEY_BYTES)
        self.hit_times, self.miss_times = Histogram(), Histogram()

    cdef bytes key_of(self, InferInput request):
        hash = self.salted.copy()
        if not feed(request, hash.update):
            return None
        return hash.digest() if self.local is not None else self.label + hash.hexdigest().encode()

    cdef bint is_long(self, InferInput request) noexcept:
        return self.threads is not None and fed_bytes(request) > LOOP_COPY_BYTES_MAX

    cdef int key_later(self, InferInput request, object done) except -1:
        self.threads(partial(hashed, [self, request]), partial(told, done, request))
        return 0

    cdef Answer find(self, bytes key, InferInput request):
        cdef Block block = self.local.find(key)
        return None if block is None else restore(request, block)

    cdef Answer unpacked(self, object value, InferInput request, Arena arena):
        cdef Block block
        cdef bytes packed
        if value is None:
            return None
        packed = value
        block = self._room(<uint64_t>PyBytes_GET_SIZE(packed), arena)
        if block is None:
            return None
        memcpy(block.data, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
        return self.restored(block, request)

    cdef bint is_long_value(self, object value) noexcept:
        return self.threads is not None and value is not None and (
            <uint64_t>PyBytes_GET_SIZE(<bytes>value) > LOOP_COPY_BYTES_MAX)

    cdef int copy_later(self, bytes value, Arena arena, object done) except -1:
        cdef Block block = self._room(<uint64_t>PyBytes_GET_SIZE(value), arena)
        if block is None:
            done(None)
        else:
            self.threads(partial(filled, [block, value]), partial(handed, done, block))
        return 0

    # What finds no room, or is no answer, is as good as missed: the request is executed, and its answer takes its place.

    def _room(self, uint64_t nbytes, Arena arena) -> Block:
        try:
            return arena.take(nbytes)
        except TisError as error:
            self.remote.report(error)
            return None

    cdef Answer restored(self, Block block, InferInput request):
        if block is None:
            return None
        try:
            return restore(request, block)
        except TisError as error:
            self.remote.report(error)
            return None

    cdef int keep(self, bytes key, Answer answer) except -1:
        cdef uint64_t nbytes = stored_bytes(answer)
        if self.threads is not None and nbytes > LOOP_COPY_BYTES_MAX:
            return self._keep_later(key, answer, nbytes)
        if self.local is not None:
            self.local.keep(key, answer)
        elif self.remote.has_room(nbytes):
            self.remote.keep(key, pack(answer))
        return 0

    cdef int _keep_later(self, bytes key, Answer answer, uint64_t nbytes) except -1:
        """A thread copies it."""
        cdef Block block
        if self.local is None:
            if self.remote.has_room(nbytes):
                self.threads(partial(packed, [answer]), partial(self._packed, key, answer))
            return 0
        block = self.local.begin_keeping(key, nbytes)
        if block is not None:
            self.threads(partial(copied, [answer, block]), partial(self._copied, key, answer, block, nbytes))
        return 0

    def _packed(self, key, answer, value):
        if value is not None:
            self.remote.keep(key, value)

    def _copied(self, key, answer, block, nbytes, whole):
        if whole and key not in self.local.entries:
            self.local.keep_copied(key, block, nbytes)

    cdef void count_hit(self, int64_t lookup_ns) noexcept:
        self.hit_times.add(lookup_ns)
        if self.local is not None:
            self.local.hits += 1
            self.local.lookup_ns += lookup_ns

    cdef void count_miss(self, int64_t lookup_ns, int64_t insertion_ns) noexcept:
        self.miss_times.add(lookup_ns + insertion_ns)
        if self.local is not None:
            self.local.misses += 1
            self.local.lookup_ns += lookup_ns
            self.local.insertion_ns += insertion_ns
