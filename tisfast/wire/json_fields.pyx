"""Fields of a parsed JSON object, with Triton's texts for those that are missing or of another type.  Layer 2 (wire)."""

from libc.stdint cimport uint64_t

from tisfast.errors import Internal

cdef object MISSING = object()


cdef not_a(str field, str kind):
    return Internal(f"Unable to parse '{field}': attempt to access JSON non-{kind} as {kind}")


cdef absent(str field):
    return Internal(f"Unable to parse '{field}': attempt to access non-existing object member '{field}'")


cdef bint is_parameter(object value):
    if type(value) is int:
        return -0x8000000000000000 <= value <= 0xFFFFFFFFFFFFFFFF
    return type(value) in (str, bool, float)


cdef str shown(object value):
    """As it stands in the JSON, shortened."""
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    return "{...}" if type(value) is dict else "[...]" if type(value) is list else f"{value!r:.60}"


cdef str text_of(dict owner, str field):
    value = owner.get(field, MISSING)
    if type(value) is str:
        return <str>value
    raise absent(field) if value is MISSING else not_a(field, "string")


cdef list list_of(dict owner, str field):
    value = owner.get(field, MISSING)
    if type(value) is list:
        return <list>value
    raise absent(field) if value is MISSING else not_a(field, "array")


cdef uint64_t unsigned(object value, str field) except? 0xFFFFFFFFFFFFFFFF:
    if type(value) is not int or not 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        raise not_a(field, "unsigned-integer")
    return value


cdef uint64_t place_number(dict parameters, str field, str region) except? 0xFFFFFFFFFFFFFFFF:
    value = parameters.get(field, 0)
    if type(value) is not int or not 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        raise Internal(
            f"{not_a(field, 'unsigned-integer')} (region '{region:.60}': it is {shown(value)}, not a whole number from 0 "
            f"to {<uint64_t>0xFFFFFFFFFFFFFFFF})")
    return value


cdef bint truth(object value, str field) except -1:
    if type(value) is not bool:
        raise not_a(field, "boolean")
    return value
