# One gRPC client connection on uvloop.  Layer 4 (front).
from libc.stdint cimport int32_t, int64_t
from tisfast.front.grpc.head cimport CallHead
from tisfast.front.grpc.listener_context cimport GrpcSession
from tisfast.front.grpc.stream cimport GrpcStream
from tisfast.front.receive_watermark cimport ReceiveWatermark
from tisfast.front.socket_writer cimport SocketWriter
from tisfast.native.memory cimport BufferView

cdef class GrpcConnection(GrpcSession):
    cdef object __weakref__
    cdef object transport
    cdef SocketWriter sender
    cdef ReceiveWatermark receiver
    cdef CallHead head
    cdef BufferView view                       # where the next bytes go, in place of shared.receive; or None
    cdef Py_ssize_t offered              # bytes of either
    cdef bint large                      # frames of its latest message went straight to its block
    cdef bint closing                    # nothing is sent any more
    cdef bint ending                     # nothing is read any more; closed once what is queued is out
    cdef bint head_open                  # a head has begun and is not complete
    cdef bint leaving, left              # first and last GOAWAY are out
    cdef bint ping_open                  # a ping of ours is not answered
    cdef int64_t born_tick, touched_tick, ping_tick, leaving_tick, head_tick
    cdef int64_t age_ticks_max           # 0: for ever
    cdef double pinged                   # when the client last pinged, by the loop's clock; 0 since we last sent data
    cdef int strikes, pings_without_data
    cdef double resets_left
    cdef int64_t resets_tick
    cdef object _place(self)
    cdef GrpcStream make_stream(self, int32_t stream_id)
    cdef GrpcStream refused(self, int32_t stream_id, bytes http_status, int code, str message)
    cdef int leave(self) except -1
    cdef int calm(self, bytes reason) except -1
    cdef int _keep_alive(self) except -1
    cdef int _end_of_age(self) except -1
    cdef bint _stalled(self) except -1
    cdef int _close(self) except -1
