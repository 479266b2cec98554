"""Requests that a kept answer may answer (rows 19.04 to 19.07).  Layer 3 (engine)."""

from functools import partial

from libc.stdint cimport int64_t
from tisfast.engine.cache cimport ModelCache


cdef class CachingRuntime:
    """See cached.pxd.  Cython has no abstract methods: subclasses override all that raise here."""

    def __cinit__(self):
        self.looking = set()

    cdef int ask_cache(self, InferRequest request, int64_t now_ns) except -1:
        cdef ModelCache cache = self.cache
        request.cache_key = cache.key_of(request.input)
        if request.cache_key is None:
            return self.enqueue(request, now_ns)
        if cache.remote is None:
            return self.looked(request, cache.find(request.cache_key, request.input))
        request.looking = True
        self.looking.add(request)
        self.stats.pending += 1
        if not cache.remote.look(request.cache_key, partial(self._on_looked, request)):
            self._on_looked(request, None)
        return 0

    def _on_looked(self, InferRequest request, value):
        """A remote cache has answered, or has not in time (None)."""
        if request.looking:  # else it was cancelled or refused meanwhile
            self.stop_looking(request)
            self.looked(request, self.cache.unpacked(value, request.input, self.arena))

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
