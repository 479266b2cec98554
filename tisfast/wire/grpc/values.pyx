"""Texts and parameters of protobuf messages as Python values; texts and order of errors are Triton's.  Layer 2 (wire)."""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport isfinite, isnan
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memcpy
from tisfast.wire.grpc.cursor cimport FIELD, FIXED64, LEN, NO_FIELD, VARINT, Cursor, Field, cursor, next_field
from tisfast.wire.infer_plan cimport InferPlan
from tisfast.wire.request_parameters cimport text_id

import orjson

from tisfast import limits
from tisfast.errors import BadRequest, Internal

cdef Py_ssize_t PARAMETERS_MAX = limits.REQUEST_PARAMETERS_MAX
cdef str ALLOWED = "triton_enable_empty_final_response"
cdef tuple KINDS = ("", "bool_param", "int64_param", "string_param", "double_param", "uint64_param")


cdef broken():
    return Internal("Unable to parse request")


cdef str text_of(const Field *field):
    try:
        return PyUnicode_DecodeUTF8(<const char *>field.data, <Py_ssize_t>field.nbytes, NULL)
    except UnicodeDecodeError:
        raise broken() from None


cdef class Parameter:
    """See values.pxd."""


cdef int take_parameter(const Field *entry, dict parameters) except -1:
    cdef Cursor c = cursor(entry.data, entry.nbytes)
    cdef Parameter parameter = Parameter.__new__(Parameter)
    cdef Field field
    cdef str key = ""
    cdef int state
    parameter.kind = ""
    while True:
        state = next_field(&c, &field)
        if state != FIELD:
            break
        if field.kind == LEN and field.number == 1:
            key = text_of(&field)
        elif field.kind == LEN and field.number == 2:
            take_value(&field, parameter)
    if state != NO_FIELD:
        raise broken()
    if len(parameters) >= PARAMETERS_MAX and key not in parameters:
        raise BadRequest(f"more than {PARAMETERS_MAX} parameters of one request, input or output")
    parameters[key] = parameter
    return 0


# The last of several kinds counts, as in any protobuf reader.
cdef int take_value(const Field *message, Parameter parameter) except -1:
    cdef Cursor c = cursor(message.data, message.nbytes)
    cdef Field field
    cdef double real
    cdef int state
    while True:
        state = next_field(&c, &field)
        if state == NO_FIELD:
            return 0
        if state != FIELD:
            raise broken()
        if field.kind == VARINT and field.number == 1:
            parameter.value = field.value != 0
        elif field.kind == VARINT and field.number == 2:
            parameter.value = <int64_t>field.value
        elif field.kind == LEN and field.number == 3:
            parameter.value = text_of(&field)
        elif field.kind == FIXED64 and field.number == 4:
            memcpy(&real, &field.value, 8)
            parameter.value = real
        elif field.kind == VARINT and field.number == 5:
            parameter.value = field.value
        else:
            continue
        parameter.kind = KINDS[field.number]


cdef bytes apply_parameters(InferPlan plan, dict parameters, bytes forwarded):
    cdef dict custom = {}
    cdef Parameter parameter
    cdef str name
    for name, parameter in parameters.items():
        if name == "sequence_id":
            expect(name, parameter, ("int64_param", "string_param"))
            # Clients write an unsigned id into the signed field: the bits count.
            plan.correlation = (text_id(parameter.value) or 0) if parameter.kind == "string_param" else bits(parameter.value)
        elif name == "sequence_start":
            expect(name, parameter, ("bool_param",))
            plan.flags |= <uint16_t>parameter.value
        elif name == "sequence_end":
            expect(name, parameter, ("bool_param",))
            plan.flags |= <uint16_t>(<uint16_t>parameter.value << 1)
        elif name == "priority":
            expect(name, parameter, ("int64_param", "uint64_param"))
            plan.priority = not_negative(name, parameter.value)
        elif name == "timeout":
            expect(name, parameter, ("int64_param",))
            plan.timeout_us = not_negative(name, parameter.value)
        elif name == ALLOWED:
            expect(name, parameter, ("bool_param",))
            plan.outputs.empty_final = parameter.value
        elif name.startswith("triton_"):
            raise BadRequest(
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting "
                f"with 'triton_' are allowed: {ALLOWED} (got '{name}')")
        elif parameter.kind in ("", "uint64_param"):
            raise BadRequest(
                f"invalid value type for '{name}' parameter, expected int64_param, bool_param, or string_param."
                f"{given(parameter)}")
        else:
            custom[name] = json_value(parameter.value)
    if forwarded:
        custom.update(orjson.loads(forwarded))
    return orjson.dumps(custom) if custom else b""


cdef str given(Parameter parameter):
    return f" (got {parameter.kind or 'none'})"


cdef int expect(str name, Parameter parameter, tuple kinds) except -1:
    if parameter.kind in kinds:
        return 0
    raise BadRequest(f"invalid value type for '{name}' parameter, expected {' or '.join(kinds)}.{given(parameter)}")


cdef uint64_t bits(int64_t value) noexcept:
    return <uint64_t>value


cdef uint64_t not_negative(str name, object value) except? 0xFFFFFFFFFFFFFFFF:
    if value < 0:
        raise BadRequest(f"invalid value for '{name}', expected value >= 0. (got {value})")
    return value


# Numbers that JSON does not have are written as Python's and Triton's JSON have them.
cdef object json_value(object value):
    cdef double real
    if type(value) is not float:
        return value
    real = value
    if isfinite(real):
        return value
    return orjson.Fragment(b"NaN" if isnan(real) else b"Infinity" if real > 0 else b"-Infinity")


cdef class SharedPlace:
    """See values.pxd."""


cdef SharedPlace shared_place(str name, dict parameters):
    cdef SharedPlace place = SharedPlace.__new__(SharedPlace)
    cdef Parameter region = parameters.get("shared_memory_region")
    cdef Parameter offset = parameters.get("shared_memory_offset")
    cdef Parameter nbytes = parameters.get("shared_memory_byte_size")
    if region is not None:
        of_kind(name, "shared_memory_region", region, "string_param")
        place.region = region.value
    for key, parameter in (("shared_memory_offset", offset), ("shared_memory_byte_size", nbytes)):
        if parameter is None:
            continue
        if region is None:
            raise BadRequest(
                f"'{key}' can not be specified without 'shared_memory_region' parameter for tensor '{name}'")
        of_kind(name, key, parameter, "int64_param")
    if region is not None and nbytes is None:
        raise BadRequest(
            f"'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor '{name}'")
    place.offset = offset.value if offset is not None else 0
    place.nbytes = nbytes.value if nbytes is not None else 0
    return place


cdef int of_kind(str name, str key, Parameter parameter, str kind) except -1:
    if parameter.kind == kind:
        return 0
    raise BadRequest(
        f"invalid value type for '{key}' parameter for tensor '{name}', expected {kind}.{given(parameter)}")
