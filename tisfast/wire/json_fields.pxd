# Fields of a parsed JSON object.  Layer 2 (wire).
from libc.stdint cimport uint64_t

# Errors with Triton's texts: `field` is of another type than `kind`; it is not there.
cdef not_a(str field, str kind)
cdef absent(str field)

# Whether a request parameter may have this value: text, truth, a float, an integer of 64 bits.
cdef bint is_parameter(object value)
# The value for an error text: short, and never deep.
cdef str shown(object value)

# These raise Internal for what is missing or of another type.
cdef str text_of(dict owner, str field)
cdef list list_of(dict owner, str field)
cdef uint64_t unsigned(object value, str field) except? 0xFFFFFFFFFFFFFFFF
cdef bint truth(object value, str field) except -1
# Offset or size of what lies in a client's region, 0 where it is not said.
cdef uint64_t place_number(dict parameters, str field, str region) except? 0xFFFFFFFFFFFFFFFF
