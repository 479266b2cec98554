# One call (RPC) of a connection.  Layer 4 (front).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from tisfast.engine.core cimport AnswerSink
from tisfast.front.grpc.head cimport CallHead
from tisfast.front.grpc.listener_context cimport GrpcSession, GrpcListenerContext
from tisfast.front.grpc.message cimport Coding, OutMessage
from tisfast.native.gather_write cimport Outgoing

# Codes of gRPC that are not Triton's.
cdef enum:
    GRPC_OK = 0
    GRPC_CANCELLED = 1
    GRPC_UNKNOWN = 2
    GRPC_DEADLINE_EXCEEDED = 4
    GRPC_RESOURCE_EXHAUSTED = 8
    GRPC_UNIMPLEMENTED = 12
    GRPC_INTERNAL = 13
    GRPC_UNAVAILABLE = 14

cdef class GrpcStream(AnswerSink):
    """Messages in, messages out, one status at the end.  Subclasses say what is done with the messages."""
    cdef GrpcSession session             # None once the call is over on the wire
    cdef GrpcListenerContext shared
    cdef int32_t id
    cdef bint head_sent
    cdef readonly bint finished          # its status is decided: nothing that still arrives matters
    cdef bint client_done                # the client sends no more
    cdef object timer                    # of the deadline, or None
    # ---- for the access log
    cdef int64_t began_ns                # 0 where it gets no line there
    cdef uint64_t received_bytes, sent_bytes
    cdef str rpc
    cdef tuple asked                     # the model and the id of the last request; None before there is one
    # ---- in
    cdef bytes encoding                  # of the client's messages
    cdef uint8_t prefix[5]
    cdef int prefix_bytes
    cdef uint64_t total, filled          # of the message that is arriving
    cdef bint compressed
    cdef object collected                # a BytesIO, which gives its bytes away uncopied; None while there is none
    cdef uint64_t message_max            # bytes of a message that is collected
    cdef uint64_t counted                # bytes of it in shared.collected
    cdef uint64_t withheld               # bytes of the flow-control window that are not given back yet
    cdef bint throttled                  # too much of it waits to be answered or sent: what comes is held
    cdef int64_t in_tick                 # when a byte last arrived
    cdef object job                      # codec.jobs.Job that must be done before anything else of the call, or None
    cdef bytearray held                  # what waits: for a job, for answers to leave, or for a turn; None: nothing does
    cdef bint end_held                   # the client's end came behind it
    cdef bint parked                     # in shared.turns
    cdef bint working                    # messages are being read
    # ---- out
    cdef Coding coding                   # of our messages
    cdef OutMessage sending
    cdef object queue                    # deque of OutMessage and what `render` takes, or None
    cdef bytes http_status               # None: 200; of a call that was none of gRPC
    cdef int code                        # once finished
    cdef bint executed                   # a model may have executed its request, which UNAVAILABLE tells
    cdef bytes message
    cdef int64_t out_tick                # when a byte last left, or began to wait
    cdef int64_t unsent                  # bytes of answers that lie in no arena, whose blocks would bound them
    cdef int open(self, GrpcSession session, int32_t stream_id, CallHead head) except -1
    # ---- told by the connection
    cdef int feed(self, const uint8_t *data, size_t n) except -1
    cdef int end(self) except -1
    cdef int closed(self, uint32_t error_code) except -1
    cdef ssize_t room(self, size_t most, bint *end) except -1
    cdef int take(self, Outgoing out, size_t n) except -1
    cdef int on_tick(self) except -1
    cdef int drain(self) except -1
    # Where the next bytes of the message that is arriving may be received, and their most, so that `feed` finds them in
    # their place.  NULL: anywhere.
    cdef uint8_t *place(self, size_t *room) noexcept
    # ---- told to the subclass; raising TisError fails the call
    cdef int on_piece(self, const uint8_t *data, uint64_t n) except -1   # of the message that is arriving
    cdef int on_message(self) except -1                  # it is complete
    cdef int on_half_close(self) except -1
    cdef int on_gone(self) except -1                     # the client left, its deadline passed, or it was refused
    cdef OutMessage render(self, object queued)
    # ---- called by the subclass
    cdef bytes take_message(self)                        # what was collected, expanded
    cdef uint64_t expanded_max(self, bytes data) except? 0   # bytes that this compressed message may expand to
    cdef str expanded_hint(self)                             # how that is raised
    cdef int send(self, object message) except -1
    cdef int finish(self, int code, str message) except -1
    cdef int fail(self, object error) except -1          # TisError
    # Our bug ends this call and no other: it is answered, and reported once.
    cdef int break_down(self, str what, object error) except -1
    cdef int give_window(self) except -1
    # Nothing that comes is looked at until `job_done`; raises TisError when the job is not taken.
    cdef int wait_for(self, object job) except -1
    cdef int job_done(self) except -1
    cdef int go_on(self) except -1                       # with what is held
    cdef size_t work(self, const uint8_t *data, size_t n) except? 0    # returns what is used of it; the rest must wait
    cdef bint crowded(self, int parts) except -1         # so much waits, or the given part of it, that it is throttled
    cdef int throttle(self) except -1
    cdef int unthrottle(self) except -1
    cdef int count_unsent(self, int64_t change) except -1
    cdef int drop_job(self) except -1
    cdef bint awaits(self, object queued) except -1      # what is queued cannot be rendered yet
    cdef int stop_timer(self) except -1
    cdef int end_waiting(self) except -1                 # swept while a complete message waits for the client's end
    cdef size_t _feed(self, const uint8_t *data, size_t n) except? 0
    cdef int _refuse(self) except -1
    cdef inline int _weight(self) noexcept
    cdef int _take_up(self) except -1
    cdef int _await_turn(self) except -1
    cdef int _start_message(self) except -1
    cdef int _collect(self, const uint8_t *data, uint64_t n) except -1
    cdef int _drop_collected(self) except -1
    cdef object new_collection(self)
    cdef int _start(self) except -1
    cdef int _note(self) except -1
    cdef int _trail(self) except -1

cdef int grpc_code(object status) except -1
