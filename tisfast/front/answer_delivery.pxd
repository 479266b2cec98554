# Answers onto a connection's socket.  Layer 4 (front).
from tisfast.front.socket_writer cimport SocketWriter
from tisfast.wire.head cimport Head
from tisfast.wire.record cimport Answer
from tisfast.wire.respond cimport ResponseBody

# HTTP head, JSON and tensors with one write, the tensors straight from the arena.  body: a buffer to render into, free
# again afterwards.  An answer that cannot be given in the form asked for becomes its error.
cdef int send_answer(SocketWriter sender, ResponseBody body, Answer answer, Head head, bint closes) except -1

# The same as a generate body.
cdef int send_generated(SocketWriter sender, ResponseBody body, Answer answer, Head head, bint closes) except -1

# head: of the request, or None when it had none.
cdef int send_response(SocketWriter sender, object response, Head head, bint closes) except -1

# The same of one that a codec process has written (codec.jobs.Rendered); answer: None where no output is sent as it is.
cdef int send_rendered(SocketWriter sender, ResponseBody body, Answer answer, object rendered, Head head, bint closes) except -1
