# From the bodies of a connection's requests to requests of the engine.  Layer 4 (front).
from libc.stdint cimport uint64_t
from tisfast.engine.interface cimport Runtime
from tisfast.front.body_collector cimport BodyCollector, SpilledBody
from tisfast.front.exchange cimport Exchange, ConnectionFace
from tisfast.front.listener_context cimport ListenerContext
from tisfast.front.receive_watermark cimport ReceiveWatermark
from tisfast.native.memory cimport Promise
from tisfast.wire.draft cimport InferBody
from tisfast.wire.head cimport Head
from tisfast.wire.record cimport InferInput

cdef enum Sink:          # where a body goes
    NOWHERE              # there is none, or its request has been refused
    ARENA                # an inference's, which is sent as it is: to a block of its model's arena
    COLLECTED            # all others

cdef class BodyReader:
    """One body at a time: `begin` with its head, `add` its bytes, `end`."""
    cdef ListenerContext shared
    cdef ConnectionFace connection
    cdef ReceiveWatermark receiver
    cdef Sink sink
    cdef Head head                       # of the request that is, or was last, being read; None: it could not be read
    cdef object verdict                  # of the policy about that head, None without a policy
    cdef uint64_t total                  # bytes of its body; of a chunked one what came of it, once it is read
    cdef uint64_t input_max              # bytes that it may have, unless it goes to an arena as it is
    cdef Runtime runtime                 # in ARENA: whose
    cdef InferBody body                  # in ARENA
    cdef Promise promise                 # of its rest, or None
    cdef BodyCollector collector             # in COLLECTED
    cdef object job                      # codec.jobs.ParseJob: the request is being read elsewhere, or None
    cdef Exchange read_for               # whose request that is
    # A request with this head begins: where does its body go?  May refuse it.
    cdef int begin(self, Head head, uint64_t input_max) except -1
    # data[0 : n] of the body.  left: bytes of it that are still to come, where that is known.
    cdef int add(self, const unsigned char *data, Py_ssize_t n, uint64_t left) except -1
    # In ARENA: where the next byte goes, and what to do once it and more are there.
    cdef unsigned char *place(self, uint64_t left) noexcept
    cdef int arrived(self, uint64_t left) except -1
    # The body is whole: it becomes a request, or is refused.
    cdef int end(self) except -1
    # Of its body nothing may have come for a while: others must know that it keeps memory.
    cdef int promise_rest(self, uint64_t left) except -1
    # The client has gone: nothing of it is wanted any more.
    cdef int drop(self) except -1
    cdef bint is_infer(self) noexcept
    cdef int _collect(self) except -1
    cdef uint64_t _collect_max(self) noexcept
    cdef int _take_block(self, uint64_t nbytes) except -1
    cdef Runtime _resolve(self)
    cdef int _keep_promise(self) except -1
    cdef int _collected(self) except -1
    cdef uint64_t _expanded_max(self, Runtime runtime) noexcept
    cdef int _infer(self) except -1
    cdef int _generate(self, bytes text) except -1
    cdef bint _is_long(self, InferBody body) except -1
    cdef int _read_spilled(self, SpilledBody body) except -1
    cdef int _read_elsewhere(self, Exchange exchange, Runtime runtime, str form, object body, uint64_t nbytes) except -1
    cdef int _submit(self, Exchange exchange, Runtime runtime, InferInput input) except -1
