# What can be asked for inferences: a model version with instances, or an ensemble of others.  Layer 3 (engine).
from libc.stdint cimport uint64_t
from tisfast.engine.core cimport Clock, InferRequest, AnswerSink
from tisfast.engine.histogram cimport Timings
from tisfast.engine.response_cache cimport ModelCache
from tisfast.engine.stats cimport Statistics
from tisfast.native.memory cimport Arena
from tisfast.wire.record cimport InferInput
from tisfast.wire.signature cimport ModelSignature

cdef class Runtime:
    """All that fronts know of a model version.  Subclasses also have the Python attributes `ready` (bool: all that it
    needs is up, and it accepts requests), `reason` (str: why not) and `queued` (int: requests waiting)."""
    cdef readonly ModelSignature signature
    cdef readonly Arena arena            # input arena: who asks takes the blocks of its request here
    cdef readonly Statistics stats
    cdef readonly Timings timings        # of successful requests
    cdef readonly object config          # ModelConfig as a JSON-able dict, normalised
    cdef readonly list links             # instances; none of an ensemble
    cdef readonly uint64_t inflight      # begun, not answered
    cdef public ModelCache cache         # None: answers are not kept
    cdef Clock clock
    # Once, by the subclass's constructor.
    cdef int found(self, ModelSignature signature, Arena arena, Clock clock, object config) except -1
    # Begin one request.  Never raises for the request's sake: refusals (queue full, not ready, stopping) go to
    # sink.failed, which may be called before this returns.  Returns the request, for `cancel`.
    # parent: the request on whose behalf this one is made (an ensemble's, a model's that calls another), or None.
    cdef InferRequest submit(self, InferInput input, AnswerSink sink, object trace=*, InferRequest parent=*)
    # A request is being received, and so many bytes of it are missing: who watches for answers should be awake when it
    # is there.
    cdef int expect(self, uint64_t missing) except -1
    # Who asked has left: a request still queued is dropped and counted CANCELED; a running one is marked, and so is its
    # record, which the model may ask.
    cdef int cancel(self, InferRequest request) except -1
    # The model versions that a request to this one needs, all of them, to be answered: itself, or an ensemble's steps.
    cdef list needs(self)
