# An Answer becomes a response body.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.record cimport Answer, OutputRef
from tisfast.wire.text_buffer cimport TextBuffer

cdef struct Segment:
    const unsigned char *data    # in the answer's blocks
    uint64_t nbytes              # > 0

cdef class ResponseBody:
    """One rendered response: JSON in `text`, then `count` segments.  Kept by a front and rendered into again.

    The caller puts what goes before the JSON (an HTTP head) into `text` itself, before or after.
    """
    cdef TextBuffer text
    cdef Segment *segments
    cdef int count
    cdef int room
    cdef uint64_t tensor_bytes       # of all segments
    # Appends to `text`.  Raises TisError when an output cannot be given in the form asked for.
    cdef int render(self, Answer answer) except -1
    cdef int add_segment(self, const unsigned char *data, uint64_t nbytes) except -1

# One output's elements as JSON, with commas and without brackets.  Raises TisError.
cdef int put_data(TextBuffer text, Answer answer, OutputRef *out) except -1

# The same of `elements` elements of any tensor but FP16 and BF16.  name: for errors.
cdef int put_elements(
    TextBuffer text, int dtype, const unsigned char *data, uint64_t nbytes, uint64_t elements, str name) except -1

# About how many bytes must be written, compared or compressed for it (`all`: compressed, so binary ones, too).
cdef uint64_t text_bytes(Answer answer, bint all) except? 0xFFFFFFFFFFFFFFFF
