# Runtimes whose answers may be kept.  Layer 3 (engine).
from libc.stdint cimport int64_t
from tisfast.engine.core cimport InferRequest
from tisfast.engine.interface cimport Runtime
from tisfast.wire.record cimport Answer

cdef class CachingRuntime(Runtime):
    cdef set looking                     # requests that wait for their key, or for what a remote cache knows
    # Answers from the cache, now or when a remote one has answered, or goes on with `enqueue`.  Only where `cache` is set.
    cdef int ask_cache(self, InferRequest request, int64_t now_ns) except -1
    # After the answer (None: an error) to a request that had to be computed was given.
    cdef int keep_answer(self, InferRequest request, Answer answer) except -1
    cdef int ask_for(self, InferRequest request, bytes key, int64_t now_ns) except -1
    cdef int start_looking(self, InferRequest request) except -1
    # The request, which is `looking`, is answered otherwise.
    cdef int stop_looking(self, InferRequest request) except -1
    cdef int looked(self, InferRequest request, Answer answer) except -1
    # Of the subclass: compute the answer; give the final answer.
    cdef int enqueue(self, InferRequest request, int64_t now_ns) except -1
    cdef int finish(self, InferRequest request, Answer answer, int status, str message) except -1
