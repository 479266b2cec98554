# The state that all connections of one listener share.  Layer 4 (front).
from libc.stdint cimport int64_t, uint64_t
from tisfast.front.text_turns cimport TextTurns
from tisfast.native.region cimport Regions
from tisfast.wire.respond cimport ResponseBody

cdef class ListenerContext:
    """What all connections of one listener share."""
    cdef readonly object registry        # None: this listener serves no inference (metrics)
    cdef readonly object routes
    cdef readonly object gate            # access.HttpGate, or None: everybody may load and unload models
    cdef readonly object policy          # header_policy.HeaderPolicy, or None when no flag asks for one
    cdef readonly object loop
    cdef readonly uint64_t max_input_bytes
    cdef readonly Regions regions
    cdef readonly object codecs          # codec.pool.Codecs, or None: everything is parsed and written on the loop
    cdef readonly uint64_t codec_bytes_min   # larger texts go there
    cdef TextTurns texts                 # None without codecs
    cdef public object tracer            # telemetry.tracer.Tracer while any request may be traced, else None
    cdef readonly object access_log      # access_log.AccessLog, or None
    cdef readonly object access          # the same while anybody reads its lines, else None
    cdef readonly set connections
    cdef readonly bint draining
    cdef readonly str closing            # why only sequences in progress are served; None: everything is
    cdef readonly bint verbose           # each request is logged
    cdef public object on_made           # called when a connection has been made (behind its TLS handshake)
    cdef public object on_empty          # called when the last connection has gone
    cdef readonly int64_t tick           # seconds counted by the sweep: connections compare, no clock is read
    cdef uint64_t collected              # bytes of chunked bodies of all connections
    cdef bytearray receive               # heads arrive here; emptied before buffer_updated returns
    cdef object receive_start            # its first bytes, where large bodies are awaited
    cdef unsigned char *receive_data
    cdef ResponseBody body                       # answers are rendered here, one at a time
    cdef int look_at_log(self) except -1 # set `verbose`
    cdef object handle(self, head, bytes body)
    cdef object refusal(self, error, head)
    cdef int report(self, str message, error) except -1
