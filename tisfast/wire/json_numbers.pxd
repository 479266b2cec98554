# Numbers that stand spelled out in an inference's JSON: found without parsing it, read straight into tensors.
# Layer 2 (wire).
from libc.stdint cimport uint64_t

cdef enum:
    SPANS_MAX = 16  # arrays of one request; those with more are parsed as a whole each time

cdef struct Span:
    const unsigned char *at     # behind the [
    uint64_t nbytes             # up to the ]

# The flat numeric arrays of all "data" members, in order.  0 when there is none, when there are too many, or when some
# "data" is anything else: then the text is to be parsed as a whole.
cdef int find_spans(const unsigned char *text, uint64_t n, Span *spans) noexcept
# What a request is remembered by: a byte that says whether something was cut off in front (1) and whether there are spans
# (2), the text from `skip` on without what is in the spans, a zero byte, and `forwarded`, which has none.  None when the
# text is too long.
cdef bytes elided(
    const unsigned char *text, uint64_t n, uint64_t skip, const Span *spans, int count, uint64_t bytes_max, bytes forwarded)
# Whether these types are read by read_span.
cdef bint is_spelled(int dtype) noexcept
# Writes `elements` numbers to `out`.  False when the span holds more, fewer, or something that needs a closer look (bad
# grammar, a number out of range or with more digits than are exact here); `out` then holds rubbish.
cdef bint read_span(const Span *span, int dtype, unsigned char *out, uint64_t elements) noexcept
