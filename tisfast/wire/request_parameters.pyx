"""Request parameters and requested outputs, for every protocol.  Layer 2 (wire)."""

from libc.stdint cimport uint16_t, uint64_t
from tisfast.wire.infer_plan cimport InferPlan, OutputChoice, OutputForm, find
from tisfast.wire.json_fields cimport is_parameter, not_a, place_number, text_of, truth, unsigned
from tisfast.wire.signature cimport TensorSpec

from tisfast.errors import BadRequest, Internal, Unsupported
from tisfast.limits import CORRELATION_ID_BYTES_MAX
from tisfast.wire import refusals


cdef int request_parameter(InferPlan plan, str name, object value, dict custom) except -1:
    if name == "timeout":
        plan.timeout_us = unsigned(value, name)
    elif name == "priority":
        plan.priority = unsigned(value, name)
    elif name == "sequence_id":
        plan.correlation = text_id(value) if type(value) is str else correlation_of(value)
    elif name == "sequence_start":
        plan.flags |= truth(value, name)
    elif name == "sequence_end":
        plan.flags |= <uint16_t>(truth(value, name) << 1)
    elif name.startswith("triton_"):
        raise BadRequest(
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
            f" (got '{name}')")
    elif is_parameter(value):
        custom[name] = value
    else:
        raise refusals.no_parameter(name)
    return 0


cdef str text_id(str value):
    if len(value) > CORRELATION_ID_BYTES_MAX or len(value.encode()) > CORRELATION_ID_BYTES_MAX:
        raise Unsupported(f"string correlation ID cannot be longer than {CORRELATION_ID_BYTES_MAX} characters")
    return value


cdef object correlation_of(object value):
    if type(value) is int and 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        return value
    raise not_a("sequence_id", "string")


cdef int choose_output(InferPlan plan, str name, dict parameters) except -1:
    cdef OutputChoice outputs = plan.outputs
    cdef TensorSpec spec
    cdef uint64_t bit
    if parameters:
        check_output_parameters(parameters)
    spec = plan.model.output_by_name.get(name)
    if spec is None:
        raise refusals.unknown_output(name, plan.model.name, plan.model.output_by_name)
    if not outputs.listed:
        outputs.listed = True
        plan.requested = 0
    bit = <uint64_t>1 << spec.index
    if plan.requested & bit:
        raise BadRequest(f"{plan.who()}output '{name}' already exists in request")
    plan.requested |= bit
    if parameters:
        choose_way(plan, spec, parameters)
    return 0


# What the parameters of an output ask for beyond its name.
cdef int choose_way(InferPlan plan, TensorSpec spec, dict parameters) except -1:
    cdef OutputChoice outputs = plan.outputs
    cdef uint64_t bit = <uint64_t>1 << spec.index
    cdef OutputForm way
    if "binary_data" in parameters and truth(parameters["binary_data"], "binary_data"):
        outputs.binary |= bit
    if "classification" not in parameters and "shared_memory_region" not in parameters:
        return 0
    way = OutputForm.__new__(OutputForm)
    way.classes = classes_of(parameters)
    if "shared_memory_region" in parameters:
        way.region = text_of(parameters, "shared_memory_region")
        way.offset = place_number(parameters, "shared_memory_offset", way.region)
        way.nbytes = place_number(parameters, "shared_memory_byte_size", way.region)
        way.unsized = "shared_memory_byte_size" not in parameters
        find(plan.regions, way.region).check(way.offset, way.nbytes, "output", spec.name)
        outputs.in_regions = True
    elif way.classes == 0:  # asks for the tensor itself
        return 0
    if outputs.ways is None:
        outputs.ways = {}
    outputs.ways[spec.index] = way
    outputs.special |= bit
    return 0


cdef uint64_t classes_of(dict parameters) except? 0xFFFFFFFFFFFFFFFF:
    value = parameters.get("classification", 0)
    if type(value) is not int or not 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        raise Internal(
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer")
    return value


cdef int check_output_parameters(dict parameters) except -1:
    if "shared_memory_region" not in parameters:
        return 0
    if "classification" in parameters:
        raise BadRequest("Output can't set both 'shared_memory_region' and 'classification'")
    if "binary_data" not in parameters:
        return 0
    if type(parameters["binary_data"]) is not bool:
        raise Internal("Unable to set 'binary_data': attempt to access JSON non-boolean as boolean")
    if parameters["binary_data"]:
        raise BadRequest("Output can't set both 'shared_memory_region' and 'binary_data'")
    return 0
