"""Requests that a kept answer may answer.  Layer 3 (engine)."""

from functools import partial

from libc.stdint cimport int64_t
from tisfast.engine.response_cache cimport ModelCache


cdef class CachingRuntime:
    """See caching_runtime.pxd.  Cython has no abstract methods: subclasses override all that raise here."""

    def __cinit__(self):
        self.looking = set()

    cdef int ask_cache(self, InferRequest request, int64_t now_ns) except -1:
        cdef ModelCache cache = self.cache
        if cache.is_long(request.input):
            self.start_looking(request)
            return cache.key_later(request.input, partial(self._on_hashed, request))
        return self.ask_for(request, cache.key_of(request.input), now_ns)

    def _on_hashed(self, InferRequest request, key):
        """A thread has made the key of a long request."""
        if request.looking:  # as below
            self.stop_looking(request)
            self.ask_for(request, key, self.clock.now_ns())

    cdef int ask_for(self, InferRequest request, bytes key, int64_t now_ns) except -1:
        cdef ModelCache cache = self.cache
        request.cache_key = key
        if key is None:
            return self.enqueue(request, now_ns)
        if cache.remote is None:
            return self.looked(request, cache.find(request.cache_key, request.input))
        self.start_looking(request)
        if not cache.remote.look(request.cache_key, partial(self._on_looked, request)):
            self._on_looked(request, None)
        return 0

    def _on_looked(self, InferRequest request, value):
        """A remote cache has answered, or has not in time (None)."""
        cdef ModelCache cache = self.cache
        if not request.looking:  # it was cancelled or refused meanwhile
            return
        if cache.is_long_value(value):
            cache.copy_later(value, self.arena, partial(self._on_copied, request))
            return
        self.stop_looking(request)
        self.looked(request, cache.unpacked(value, request.input, self.arena))

    def _on_copied(self, request: InferRequest, block):
        """A thread has copied a long answer of a remote cache."""
        if request.looking:  # as above
            self.stop_looking(request)
            self.looked(request, self.cache.restored(block, request.input))

    cdef int start_looking(self, InferRequest request) except -1:
        request.looking = True
        self.looking.add(request)
        self.stats.pending += 1
        return 0

    cdef int stop_looking(self, InferRequest request) except -1:
        request.looking = False
        self.looking.discard(request)
        self.stats.pending -= 1
        return 0

    cdef int looked(self, InferRequest request, Answer answer) except -1:
        """The cache has `answer` for the request, or nothing."""
        cdef int64_t now_ns = self.clock.now_ns()
        request.lookup_ns = now_ns - request.queued_ns
        if answer is None:
            return self.enqueue(request, now_ns)
        self.cache.count_hit(request.lookup_ns)
        self.stats.count_hit(request.queued_ns, request.lookup_ns, now_ns)
        self.timings.add_hit(request.lookup_ns)
        self.stats.last_inference_ms = self.clock.epoch_ms()
        return self.finish(request, answer, 0, None)

    cdef int keep_answer(self, InferRequest request, Answer answer) except -1:
        cdef ModelCache cache = self.cache
        cdef int64_t start_ns = self.clock.now_ns(), spent_ns
        if answer is not None:
            cache.keep(request.cache_key, answer)
        spent_ns = self.clock.now_ns() - start_ns
        cache.count_miss(request.lookup_ns, spent_ns)
        self.stats.count_miss(request.lookup_ns + spent_ns)
        return 0

    cdef int enqueue(self, InferRequest request, int64_t now_ns) except -1:
        raise NotImplementedError(f"{type(self).__name__}.enqueue")

    cdef int finish(self, InferRequest request, Answer answer, int status, str message) except -1:
        raise NotImplementedError(f"{type(self).__name__}.finish")
