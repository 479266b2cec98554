# What the calls of one gRPC listener share, and a connection as its calls see it.  Layer 4 (front).
from libc.stdint cimport int32_t, int64_t, uint64_t
from tisfast.front.grpc.message_turns cimport MessageTurns
from tisfast.native.http2 cimport Http2Server
from tisfast.wire.grpc.infer cimport Peek
from tisfast.wire.grpc.respond cimport GrpcBody

cdef class GrpcListenerContext:
    """The state that all connections of one listener share."""
    cdef readonly object registry
    cdef readonly object methods             # grpc.methods.Methods
    cdef readonly object regions             # shared-memory regions, or None
    cdef readonly object codecs              # codec.pool.Codecs, or None: everything is parsed and written on the loop
    cdef readonly uint64_t codec_bytes_min   # what is larger goes there
    cdef readonly object settings            # config.settings.GrpcSettings
    cdef readonly object restriction         # or None: check(category, metadata) raises TisError
    cdef readonly object forward             # or None: parameters(metadata) is a JSON object
    cdef object tracer                       # telemetry.tracer.Tracer while requests may be sampled, or None
    cdef readonly object loop
    cdef readonly uint64_t max_input_bytes
    cdef readonly object access_log          # access_log.AccessLog, or None
    cdef readonly object access              # the same while anybody reads its lines, else None
    cdef readonly set connections
    cdef readonly bint draining
    cdef readonly str closing                # why only sequences in progress are served; None: everything is
    cdef public object on_made               # called when a connection has been made (behind its TLS handshake)
    cdef public object on_empty              # called when the last connection has gone
    cdef readonly int64_t tick               # seconds counted by the sweep
    cdef bint keeps_metadata                 # of inferences, too
    cdef int compression                     # level of answers: 0 none, 1 low, 2 medium, 3 high
    cdef readonly uint64_t collected_bytes   # bytes of messages outside arenas, of all connections
    cdef bytearray receive                   # frames arrive here; emptied before buffer_updated returns
    cdef object receive_start                # a memoryview of its beginning, for who sends large tensors
    cdef unsigned char *receive_data
    cdef GrpcBody body                       # answers are rendered here, one at a time
    cdef readonly MessageTurns turns
    cdef Peek peek
    cdef list dirty                          # connections that have something to send at the end of this turn
    cdef object flush_turn                   # bound once
    cdef int count_collected(self, int64_t change) except -1

cdef class GrpcSession(Http2Server):
    """A connection as its calls see it."""
    cdef GrpcListenerContext shared
    cdef int fd                              # of its socket; -1 under TLS
    cdef object peer                         # the client's address
    cdef bint receiving                      # inside `receive`, after which everything is sent
    cdef bint marked                         # in shared.dirty
    cdef readonly int64_t unsent             # bytes of all calls' `unsent`
    # Something can be sent: it goes out with all else of this turn of the loop.
    cdef int touch(self) except -1
    cdef int mark(self) except -1            # flush at the end of this turn
    cdef int flush(self) except -1
