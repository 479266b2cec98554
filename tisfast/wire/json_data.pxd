# JSON text to values, and JSON tensor data to tensor bytes.  Layer 2 (wire).
from libc.stdint cimport uint64_t

# Raises Internal with Triton's wording and the place, or BadRequest when the nesting is too deep.
cdef object load_json(const unsigned char *text, Py_ssize_t n)
cdef object binary_head(const unsigned char *data, Py_ssize_t n)

# Writes `elements` numbers or truth values of nested or flat lists to `out`.  name: of the input, for errors.
cdef int fill_numbers(list data, int dtype, unsigned char *out, uint64_t elements, str name) except -1

# Strings in nested or flat lists: their number, and bytes in KServe's form.
cdef int measure_strings(list data, uint64_t *elements, uint64_t *nbytes, str name) except -1
cdef int fill_strings(list data, unsigned char **out) except -1
