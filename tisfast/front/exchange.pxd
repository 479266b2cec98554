# One request of a connection and its answers.  Layer 4 (front).
from tisfast.engine.core cimport InferRequest, Reply
from tisfast.engine.served cimport Runtime
from tisfast.front.sender cimport Sender
from tisfast.wire.head cimport Head
from tisfast.wire.record cimport Answer
from tisfast.wire.plan cimport OutputChoice
from tisfast.wire.respond cimport Body

cdef class Turns:
    """What an exchange knows of its connection."""
    # Something can be sent: send what is due, in the order of arrival.
    cdef int flush(self) except -1
    # The client reads its stream so slowly that it must be given up.
    cdef int give_up(self) except -1

cdef class Exchange(Reply):
    """One request of a connection and its answer."""
    cdef Turns connection                # None once all is sent or the client has gone
    cdef Head head                       # None when the request had none
    cdef Runtime runtime
    cdef InferRequest request            # while the engine has it
    cdef bint ready                      # has something to send
    cdef bint close_after, linger
    cdef object trace                    # front.trace.Trace of a sampled request, else None
    cdef Answer answer                   # one of these two is set when ready
    cdef object response                 # response.Response
    cdef int respond(self, object response) except -1
    # A Response, or a Future of one, which is sent when it is done.
    cdef int respond_when_done(self, object response) except -1
    # Its turn has come: send what there is.  True when that was all.  body: to render into.
    cdef bint send(self, Sender sender, Body body) except -1

cdef class GenerateExchange(Exchange):
    """A generate request: one answer, or an error that says so."""
    cdef int _refuse(self, InferRequest request, object status, str message, bint final) except -1

cdef class StreamExchange(Exchange):
    """A request whose answers are events (generate_stream; infer with Accept: text/event-stream)."""
    cdef bint generate                   # how an event is written: as generate does, or as an inference's answer
    cdef object waiting                  # deque of Answer, or of (status, message)
    cdef bint started, ended, finished   # head sent; the engine has no more; all sent
    cdef int _arrived(self, object event, bint final) except -1
    cdef int _send_next(self, Sender sender, Body body) except -1
    cdef int _write(self, Sender sender, Body body, int status) except -1

# Whether an inference can be answered in events.  Raises BadRequest when it asks for binary outputs.
cdef int check_events(OutputChoice choice) except -1
