# Runtimes whose answers may be kept.  Layer 3 (engine).
from libc.stdint cimport int64_t
from tisfast.engine.core cimport AnswerSink, InferRequest
from tisfast.engine.interface cimport Runtime
from tisfast.wire.record cimport Answer

cdef class CachingRuntime(Runtime):
    cdef set looking                     # requests that wait for copies of their inputs, their key, or what a remote cache knows
    cdef bint keeps_order                # requests of one sequence reach `enqueue` in the order of `begin`
    cdef dict behind                     # by sequence: deque of its requests that wait for copies, or for those of one before
    cdef public object beside            # beside(steps, kept, done, seconds): threads carry out the steps (wire/late_copies),
                                         # kept stays until they have; done is called later with (), with (status, text) of
                                         # what failed, or after so many seconds (0: any) with a text of what it waited for;
                                         # gives what `cancel()`s it.  None: the loop does it
    # A new request: its inputs are copied, then the cache is asked or `enqueue` called.
    cdef int begin(self, InferRequest request, int64_t now_ns) except -1
    cdef int copy_inputs(self, InferRequest request) except -1
    # What follows in a sequence when one of its requests has its inputs, or has gone.
    cdef int go_on(self, object correlation) except -1
    cdef int ask_or_enqueue(self, InferRequest request, int64_t now_ns) except -1
    # An answer, or an error: `tell` is called once threads have copied what must not hold up the loop.  A request's answers
    # stay in their order.
    cdef int give(
        self, InferRequest request, AnswerSink sink, Answer answer, int status, str message, bint final) except -1
    cdef int make_first(self, InferRequest request) except -1
    cdef tuple copy_answer(self, InferRequest request, Answer answer)
    # No further copies are made for its answers: those that need one are told as this failure, or that the client left.
    cdef int give_up_copies(self, InferRequest request, int status, str message) except -1
    cdef int cancel_copies(self, InferRequest request) except -1
    # Answers from the cache, now or when a remote one has answered, or goes on with `enqueue`.  Only where `cache` is set.
    cdef int ask_cache(self, InferRequest request, int64_t now_ns) except -1
    # After the answer (None: an error) to a request that had to be computed was given.
    cdef int keep_answer(self, InferRequest request, Answer answer) except -1
    cdef int ask_for(self, InferRequest request, bytes key, int64_t now_ns) except -1
    cdef int start_looking(self, InferRequest request) except -1
    # The request, which is `looking`, is answered otherwise.
    cdef int stop_looking(self, InferRequest request) except -1
    cdef int looked(self, InferRequest request, Answer answer) except -1
    # Of the subclass: refuse a request whose inputs could not be copied; a text: in its time, see `beside`.
    cdef int refuse_copied(self, InferRequest request, object failure) except -1
    # How long it may wait in a queue; 0: as long as there is one.
    cdef int64_t patience_ns(self, InferRequest request) except -1
    cdef int tell(
        self, InferRequest request, AnswerSink sink, Answer answer, int status, str message, bint final) except -1
    # Compute the answer; give the final answer.
    cdef int enqueue(self, InferRequest request, int64_t now_ns) except -1
    cdef int finish(self, InferRequest request, Answer answer, int status, str message) except -1
