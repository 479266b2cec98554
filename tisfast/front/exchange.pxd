# One request of a connection and its answers.  Layer 4 (front).
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.core cimport InferRequest, AnswerSink
from tisfast.engine.interface cimport Runtime
from tisfast.front.socket_writer cimport SocketWriter
from tisfast.wire.head cimport Head
from tisfast.wire.infer_plan cimport OutputChoice
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.respond cimport ResponseBody

cdef class Exchange

cdef class ConnectionFace:
    """The face of a connection that exchanges and the reader of bodies use."""
    cdef object codecs                   # codec.pool.Codecs, or None
    cdef uint64_t text_bytes_max         # larger answers are written there
    cdef bint in_order                   # what is being done must be done before the next request is looked at
    # Something can be sent: send what is due, in the order of arrival.
    cdef int flush(self) except -1
    # The client reads its stream so slowly that it must be given up.
    cdef int give_up(self) except -1
    # The request at hand gets its place among those that are to be answered.
    cdef Exchange open(self)
    # Answer the request at hand, which is none; `close` when what follows cannot be told from its body.
    cdef int refuse(self, object response, bint close) except -1
    # A trace of the request at hand, which has become this input; None when it is not to be traced.
    cdef object sample(self, InferInput input)

cdef class Exchange(AnswerSink):
    """One request of a connection and its answer."""
    cdef ConnectionFace connection                # None once all is sent or the client has gone
    cdef Head head                       # None when the request had none
    cdef Runtime runtime
    cdef InferRequest request            # while the engine has it
    cdef bint ready                      # has something to send
    cdef bint close_after, linger
    cdef int64_t began_ns                # 0 where it gets no line of the access log
    cdef uint64_t received_bytes         # of its body
    cdef Head noted                      # the head for that line; None where it could not be read
    cdef str id                          # the request's, for that line; None where it has none
    cdef bint is_stream
    cdef object trace                    # telemetry.trace.Trace of a sampled request, else None
    cdef Answer answer                   # one of these two is set when ready
    cdef object response                 # response.Response
    cdef object job                      # codec.jobs.RenderJob: its answer is being written elsewhere, or None
    cdef object rendered                 # codec.jobs.Rendered: of that
    # The answer is there: it may be sent, or be written elsewhere first.
    cdef int _complete(self, str form) except -1
    cdef int _write_elsewhere(self, str form, Answer answer, uint64_t nbytes) except -1
    cdef int respond(self, object response) except -1
    # A Response, or a Future of one, which is sent when it is done; the next request begins only then.
    cdef int respond_when_done(self, object response) except -1
    # Its turn has come: send what there is.  True when that was all.  body: to render into.
    cdef bint send(self, SocketWriter sender, ResponseBody body) except -1

cdef class GenerateExchange(Exchange):
    """A generate request: one answer, or an error that says so."""
    cdef int _refuse(self, InferRequest request, object status, str message, bint final) except -1

cdef class StreamExchange(Exchange):
    """A request whose answers are events (generate_stream; infer with Accept: text/event-stream)."""
    cdef bint generate                   # how an event is written: as generate does, or as an inference's answer
    cdef object waiting                  # deque of Answer, or of (status, message)
    cdef bint started, ended, finished   # head sent; the engine has no more; all sent
    cdef int _arrived(self, object event, bint final) except -1
    cdef int _send_next(self, SocketWriter sender, ResponseBody body) except -1
    cdef int _write(self, SocketWriter sender, ResponseBody body, int status) except -1
    cdef bytes _before(self, SocketWriter sender, int status)
    cdef int _send_written(self, SocketWriter sender) except -1

# Whether an inference can be answered in events.  Raises BadRequest when it asks for binary outputs.
cdef int check_events(OutputChoice choice) except -1
