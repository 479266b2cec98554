# Typed tensor contents (InferTensorContents) become tensor bytes.  Layer 2 (wire).
from libc.stdint cimport uint8_t, uint64_t

cdef class Contents:
    """All `contents` fields of one input message, which stays borrowed until `fill`."""
    cdef const unsigned char *input
    cdef uint64_t input_bytes
    cdef uint8_t number             # of the field that holds elements; 0 when there are none
    cdef uint8_t dtype
    cdef str name                   # of the input
    cdef readonly uint64_t nbytes   # of the tensor
    cdef int fill(self, unsigned char *out) except -1

# input: an InferInputTensor with at least one `contents` field.  Raises BadRequest, Internal when broken.
cdef Contents measure_contents(
    const unsigned char *input, uint64_t input_bytes, int dtype, str name, str datatype, str model_name)
