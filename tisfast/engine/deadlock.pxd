# Calls that could never be answered.  Layer 3 (engine).
from tisfast.engine.core cimport InferRequest, Link, AnswerSink
from tisfast.engine.interface cimport Runtime

cdef class OpenCalls:
    """The calls of one instance that are not answered: edges of the graph of waits."""
    cdef Link link
    cdef dict open                          # number: OpenCall

cdef class OpenCall(AnswerSink):
    """One of them."""
    cdef OpenCalls calls
    cdef readonly Runtime callee
    cdef readonly InferRequest request      # None until it is submitted
    cdef tuple parents                      # requests on whose behalf it is made
    cdef readonly bint waits                # its instance executes nothing else meanwhile

# Whether `callee` has no instance that could ever take a request of `caller`, an instance that would wait for it: all of
# them wait, directly or through others, for `caller` or for each other.  True is certain, False is not: threads of models
# wait for what nobody sees.
cdef bint stuck(Link caller, Runtime callee) except -1

# Whether no instance of `callee` could ever have the resources that an execution needs (rate_limiter.pxd), because those that
# wait for `call`, which `caller` is about to make, hold them.
cdef bint withheld(Link caller, OpenCall call, Runtime callee) except -1
