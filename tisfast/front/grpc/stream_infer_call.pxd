# ModelStreamInfer: many requests in flight, answers with their errors in the stream.  Layer 4 (front).
from libc.stdint cimport int64_t
from tisfast.engine.core cimport InferRequest, AnswerSink
from tisfast.engine.interface cimport Runtime
from tisfast.front.grpc.infer_call cimport InferenceStream
from tisfast.front.grpc.message cimport OutMessage
from tisfast.wire.record cimport Answer, InferInput

cdef class StreamAnswer:
    """A message to be sent for one request: an answer, the end of a decoupled one, or an error.  Rendered when its turn
    comes."""
    cdef Answer answer
    cdef InferInput input                # of an empty final response, and of an error of a request that was accepted
    cdef bint final
    cdef int status                      # of an error
    cdef bint refused                    # an error of what never was in the queue
    cdef str error
    cdef int64_t counted                 # bytes in the call's `unsent`
    cdef str id, name, version           # of an error of a request that was refused
    cdef object traced                   # traced.TracedAnswers of a sampled request, or None
    cdef object job                      # codec.jobs.RenderJob: it is being written, or has been; None: it is not
    cdef StreamInferCall call            # meanwhile
    cdef int write_elsewhere(self, StreamInferCall call) except -1

cdef class StreamRequest(AnswerSink):
    """One request of the call."""
    cdef StreamInferCall call            # None once the call is over
    cdef Runtime runtime
    cdef InferRequest request            # while the engine has it
    cdef bint decoupled
    cdef StreamAnswer answer             # that waits for answers of earlier requests
    cdef object traced                   # traced.TracedAnswers of a sampled request, or None
    cdef int deliver(self, StreamAnswer answer, bint final) except -1

cdef class StreamInferCall(InferenceStream):
    cdef set requests                    # that the engine has
    cdef set traces                      # TracedAnswers that are not finished; None: there was none
    cdef object order                    # deque of StreamRequest that are not decoupled, oldest first
    cdef bint wants_status               # the first error of the engine or a model ends the call
    cdef bint skipping                   # the rest of a message that was refused
    cdef int trace_request(self, StreamRequest made, InferInput input) except -1
    cdef int refuse(self, object error) except -1
    cdef int emit(self, StreamAnswer answer) except -1
    cdef OutMessage rendered(self, StreamAnswer answer)
    cdef int advance(self) except -1
    cdef int settle(self) except -1
    cdef Py_ssize_t waiting(self) noexcept
