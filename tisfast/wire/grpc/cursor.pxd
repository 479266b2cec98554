# A cursor over a protobuf message: fields one by one, nothing copied, nothing read beyond the end.  Layer 2 (wire).
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum WireType:
    VARINT = 0
    FIXED64 = 1
    LEN = 2
    GROUP_START = 3
    GROUP_END = 4
    FIXED32 = 5

cdef enum Next:
    NO_FIELD = 0        # the message ends here
    FIELD = 1
    BROKEN = -1         # no protobuf message, or it ends within a field

cdef enum:
    GROUPS_MAX = 100    # nesting of groups, as protobuf's own readers have it

cdef struct Cursor:
    const unsigned char *at
    const unsigned char *end

cdef struct Field:
    uint32_t number
    uint8_t kind                # WireType; of a group only the number counts, it has been skipped
    uint64_t value              # of VARINT, FIXED32, FIXED64
    const unsigned char *data   # of LEN
    uint64_t nbytes

cdef inline Cursor cursor(const unsigned char *data, uint64_t nbytes) noexcept nogil:
    cdef Cursor made
    made.at = data
    made.end = data + nbytes
    return made

# False when it is cut off or longer than ten bytes.
cdef inline bint take_varint(Cursor *c, uint64_t *value) noexcept nogil:
    cdef uint64_t got = 0
    cdef int shift = 0
    cdef unsigned char byte
    while c.at < c.end and shift < 70:
        byte = c.at[0]
        c.at += 1
        got |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = got
            return True
        shift += 7
    return False

cdef inline bint take_fixed(Cursor *c, uint64_t *value, Py_ssize_t nbytes) noexcept nogil:
    if c.end - c.at < nbytes:
        return False
    value[0] = 0
    memcpy(value, c.at, nbytes)
    c.at += nbytes
    return True

cdef inline int next_field(Cursor *c, Field *field) noexcept nogil:
    cdef uint64_t tag = 0
    if c.at >= c.end:
        return NO_FIELD
    if not take_varint(c, &tag) or tag >> 32 or tag < 8:
        return BROKEN
    field.number = <uint32_t>(tag >> 3)
    field.kind = <uint8_t>(tag & 7)
    if field.kind == LEN:
        if not take_varint(c, &field.nbytes) or field.nbytes > <uint64_t>(c.end - c.at):
            return BROKEN
        field.data = c.at
        c.at += field.nbytes
        return FIELD
    if field.kind == VARINT:
        return FIELD if take_varint(c, &field.value) else BROKEN
    if field.kind == FIXED32:
        return FIELD if take_fixed(c, &field.value, 4) else BROKEN
    if field.kind == FIXED64:
        return FIELD if take_fixed(c, &field.value, 8) else BROKEN
    if field.kind == GROUP_START:
        return skip_group(c, field.number)
    return BROKEN

# A group is unknown here (proto3 has none): everything up to its end.
cdef inline int skip_group(Cursor *c, uint32_t number) noexcept nogil:
    cdef uint32_t open[GROUPS_MAX]
    cdef int depth = 1
    cdef uint64_t tag = 0, ignored = 0
    open[0] = number
    while depth:
        if not take_varint(c, &tag) or tag >> 32 or tag < 8:
            return BROKEN
        if tag & 7 == GROUP_START:
            if depth == GROUPS_MAX:
                return BROKEN
            open[depth] = <uint32_t>(tag >> 3)
            depth += 1
        elif tag & 7 == GROUP_END:
            depth -= 1
            if open[depth] != tag >> 3:
                return BROKEN
        elif tag & 7 == LEN:
            if not take_varint(c, &ignored) or ignored > <uint64_t>(c.end - c.at):
                return BROKEN
            c.at += ignored
        elif tag & 7 == VARINT:
            if not take_varint(c, &ignored):
                return BROKEN
        elif tag & 7 == FIXED32:
            if not take_fixed(c, &ignored, 4):
                return BROKEN
        elif tag & 7 == FIXED64:
            if not take_fixed(c, &ignored, 8):
                return BROKEN
        else:
            return BROKEN
    return FIELD

cdef inline int varint_bytes(uint64_t value) noexcept nogil:
    cdef int n = 1
    while value >= 0x80:
        value >>= 7
        n += 1
    return n

# Returns the byte behind it.
cdef inline unsigned char *put_varint(unsigned char *at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <unsigned char>(value | 0x80)
        value >>= 7
        at += 1
    at[0] = <unsigned char>value
    return at + 1
