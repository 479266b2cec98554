# Ensembles: requests that are answered by requests to other models.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t
from tisfast.engine.caching_runtime cimport CachingRuntime
from tisfast.engine.core cimport InferRequest, AnswerSink
from tisfast.engine.ensemble_graph cimport EnsembleGraph, Selection, StepPlan
from tisfast.engine.ensemble_limits cimport StepLimits
from tisfast.engine.ensemble_scope cimport ScopeTensor, Scope
from tisfast.engine.interface cimport Runtime
from tisfast.engine.stats cimport FailureReason, Times
from tisfast.wire.compose cimport ComposeFields
from tisfast.wire.record cimport Answer

cdef class StepRun(AnswerSink):
    """One request to a step's model."""
    cdef EnsembleRun run
    cdef StepPlan step
    cdef Scope scope
    cdef Runtime runtime
    cdef InferRequest request
    cdef ComposeFields fields
    cdef uint32_t batch             # as ScopeTensor's, of its outputs
    cdef bint admitted              # counts in its step's limit
    cdef bint answered_once, finished
    cdef int heard(self, InferRequest request, Answer answer, int status, str message, bint final) except -1
    cdef int take(self, InferRequest request, Answer answer, bint final) except -1

cdef class EnsembleRun(InferRequest):
    """One request to an ensemble."""
    cdef EnsembleRuntime ensemble
    cdef Selection selection
    cdef Scope root
    cdef Scope turn                 # whose answer is due next; None when all are given
    cdef object ready               # deque of StepRun
    cdef set active                 # StepRuns that are with a model
    cdef uint32_t waiting           # StepRuns that wait for their step's limit
    cdef bint advancing
    cdef bint begun_answering
    cdef bytes parameters
    cdef int64_t input_ns, infer_ns, output_ns  # of all steps
    cdef int begin(self) except -1
    cdef int advance(self) except -1
    cdef int start(self, StepRun step) except -1
    cdef int send(self, StepRun step) except -1
    cdef int hold(self, Scope scope, int number, ScopeTensor held) except -1
    cdef bint writes_once(self) noexcept
    cdef int device_wanted(self, StepPlan step, int device) except -2
    cdef int arrived(self, StepRun step, Answer answer) except -1
    cdef int deliver(self) except -1
    cdef int answer_scope(self, Scope scope) except -1
    cdef int succeed(self, Answer answer, bint final) except -1
    cdef int count_times(self, InferRequest request) except -1
    cdef int step_failed(self, Scope scope, int status, str message) except -1
    cdef int fail(self, int status, str message) except -1
    cdef bint executing(self) except -1
    cdef int close(self) except -1

cdef class EnsembleRuntime(CachingRuntime):
    cdef readonly EnsembleGraph graph
    cdef object resolve             # (model, version) -> Runtime; raises TisError
    cdef str refusal                # not None: new requests are refused with this text
    cdef StepLimits limits          # max_inflight_requests, None without
    cdef bint admitting
    # False: it has to wait.  Raises Unavailable when too many do.
    cdef bint admit(self, StepRun step) except -1
    cdef int leave(self, StepRun step) except -1
    cdef int forget(self, EnsembleRun run) except -1
