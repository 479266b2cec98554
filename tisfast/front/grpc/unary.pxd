# Calls of the methods that are no inferences.  Layer 4 (front).
from tisfast.front.grpc.stream cimport GrpcStream

cdef class UnaryCall(GrpcStream):
    """One message, one answer."""
    cdef object handler                  # methods.UnaryHandler
    cdef dict metadata
    cdef str path
    cdef bytes request
    cdef int _answer(self, bytes answer) except -1
    cdef int _failed(self, error) except -1

cdef class StreamingCall(GrpcStream):
    """Messages and answers at any time."""
    cdef object call                     # methods.StreamCall
    cdef bint closes                     # with the client's side
    cdef int start_call(self, object method) except -1
