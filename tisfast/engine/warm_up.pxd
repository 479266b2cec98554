# Requests that no client sent: an instance executes them before it is ready.  Layer 3 (engine).
from tisfast.engine.core cimport Reply

cdef class Sink(Reply):
    """The replies of one execution's requests.  `errors`: what failed, in Triton's words."""
    cdef readonly list errors
    cdef readonly int open               # requests without their final answer
    cdef object done                     # called when none is left
