# Calls that could never be answered.  Layer 3 (engine).
from tisfast.engine.calls cimport Call
from tisfast.engine.core cimport Link
from tisfast.engine.served cimport Runtime

# Whether `callee` has no instance that could ever take a request of `caller`, an instance that would wait for it: all of
# them wait, directly or through others, for `caller` or for each other.  True is certain, False is not: threads of models
# wait for what nobody sees.
cdef bint stuck(Link caller, Runtime callee) except -1

# Whether no instance of `callee` could ever have the resources that an execution needs (rate_limiter.pxd), because those that
# wait for `call`, which `caller` is about to make, hold them.
cdef bint withheld(Link caller, Call call, Runtime callee) except -1
