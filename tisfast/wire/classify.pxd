# The best classes of an output.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.signature cimport TensorSpec

# BYTES elements in KServe's form: of each row the `classes` best of its `elements` values, best first, as
# "value:index" or "value:index:label".  data: rows * elements values of this type, which need not be the configured one, at
# any address.
# Raises BadRequest for types without an order and for rows that are too long.
cdef bytes best_classes(
    TensorSpec spec, int dtype, const unsigned char *data, uint64_t rows, uint64_t elements, uint64_t classes)
