"""From a parsed inference head (JSON values) to a checked InferPlan.  Layer 2 (wire).

Statuses and texts are Triton's, in Triton's order: first what the head itself says
wrong, then what does not fit the model.  What stands behind Triton's text in brackets is ours.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from tisfast.wire.check_request cimport check_fit
from tisfast.wire.draft cimport InferBody
from tisfast.wire.infer_plan cimport FROM_BINARY, FROM_JSON, FROM_NOWHERE, FROM_REGION, InferPlan, OutputChoice, TensorPlan, find
from tisfast.wire.json_fields cimport absent, list_of, not_a, place_number, text_of, truth, unsigned
from tisfast.wire.outputs cimport output_places
from tisfast.wire.record cimport InputRef, RecordTemplate, record_template
from tisfast.wire.request_parameters cimport check_output_parameters, choose_output, request_parameter
from tisfast.wire.signature cimport BYTES, FP16, BF16, ModelSignature, TensorSpec, item_bytes

import orjson

from tisfast import limits
from tisfast.errors import BadRequest, Internal
from tisfast.types import BY_WIRE
from tisfast.wire import refusals

cdef dict DTYPE_BY_WIRE = {name: kind.code for name, kind in BY_WIRE.items()}
cdef Py_ssize_t ID_BYTES_MAX = limits.REQUEST_ID_BYTES_MAX
cdef Py_ssize_t RANK_MAX = limits.TENSOR_RANK_MAX
cdef uint64_t INT64_TOP = 0x7FFFFFFFFFFFFFFF
cdef Py_ssize_t SURPLUS_INPUTS_MAX = limits.SURPLUS_INPUTS_MAX
cdef object MISSING = object()


cdef InferPlan parse_plan(InferBody body, object doc, uint64_t binary_bytes, list values):
    cdef InferPlan plan = new_plan(body.model)
    cdef dict root
    plan.regions = body.regions
    if type(doc) is not dict:
        raise absent("inputs")
    root = <dict>doc
    parameters = b""
    if "id" in root:
        read_id(plan, root)
    if "parameters" in root:
        parameters = read_parameters(plan, root["parameters"])
    read_inputs(plan, list_of(root, "inputs"), binary_bytes, body.max_input_bytes, values)
    outputs = root.get("outputs", MISSING)
    if outputs is not MISSING:
        if type(outputs) is not list:
            raise not_a("outputs", "array")
        read_outputs(plan, <list>outputs)
    if body.forwarded:
        parameters = orjson.dumps({**orjson.loads(parameters or b"{}"), **orjson.loads(body.forwarded)})
    return finish(plan, parameters)


cdef InferPlan new_plan(ModelSignature model):
    cdef InferPlan plan = InferPlan.__new__(InferPlan)
    plan.model = model
    plan.id = ""
    plan.correlation = 0
    plan.batch = 1
    plan.all_binary = True
    plan.outputs = OutputChoice.__new__(OutputChoice)
    plan.requested = model.all_outputs
    plan.shape_key = b""
    return plan


# Checks against the model, then the part of the record that repeats.
cdef InferPlan finish(InferPlan plan, bytes parameters):
    cdef InputRef small[16]
    cdef InputRef *inputs = small
    cdef int i
    check_fit(plan)
    plan.stays = plan.binary_bytes > 0 and not (plan.raw and plan.tensors[0].dtype == BYTES)
    if plan.count > 16:
        inputs = <InputRef *>PyMem_Malloc(plan.count * sizeof(InputRef))
        if inputs == NULL:
            raise MemoryError()
    try:
        for i in range(plan.count):
            inputs[i].index = plan.tensors[i].index
            inputs[i].dtype = plan.tensors[i].dtype
            inputs[i].rank = plan.tensors[i].rank
            inputs[i].shape = plan.tensors[i].shape
        plan.template = record_template(
            inputs, plan.count, plan.requested, plan.batch, plan.timeout_us, plan.flags, plan.correlation, parameters)
        if plan.outputs.in_regions:
            plan.template.output_places = output_places(plan, plan.outputs.ways)
    finally:
        if inputs != small:
            PyMem_Free(inputs)
    return plan


cdef int read_id(InferPlan plan, dict root) except -1:
    plan.id = text_of(root, "id")
    if len(plan.id) > ID_BYTES_MAX or len(plan.id.encode()) > ID_BYTES_MAX:
        raise BadRequest(f"Unable to parse 'id': it has {len(plan.id.encode())} bytes, {ID_BYTES_MAX} is the limit")
    return 0


# Returns the custom ones as JSON text.
cdef bytes read_parameters(InferPlan plan, object parameters):
    cdef dict custom = {}
    if type(parameters) is not dict:
        raise Internal("failed to get request params.: attempt to get members for non-object")
    for name, value in (<dict>parameters).items():
        if name == "binary_data_output":
            plan.outputs.binary_default = truth(value, name)
        else:
            request_parameter(plan, name, value, custom)
    return orjson.dumps(custom) if custom else b""


cdef int read_inputs(
    InferPlan plan, list inputs, uint64_t binary_bytes, uint64_t max_input_bytes, list values) except -1:
    cdef Py_ssize_t n = len(inputs)
    cdef Py_ssize_t dims = 0
    cdef int64_t *shape
    cdef dict names = {}
    cdef int i
    for item in inputs:
        if type(item) is dict:
            declared = (<dict>item).get("shape")
            if type(declared) is list:
                dims += len(<list>declared)
    if n > len(plan.model.inputs) + SURPLUS_INPUTS_MAX:  # before anything is reserved for them
        raise refusals.too_many_inputs(plan.who(), len(plan.model.inputs), n, plan.model.name)
    plan.reserve(n, dims)
    values.extend(plan.names)
    shape = plan.shapes
    for i in range(n):
        shape = read_input(plan, i, inputs[i], shape, names, binary_bytes, max_input_bytes, values)
    if plan.binary_bytes != binary_bytes:
        raise BadRequest(
            f"unexpected additional input data for model '{plan.model.name}' "
            f"({binary_bytes - plan.binary_bytes} bytes behind the last tensor)")
    return 0


# Returns where the next input's shape goes.
cdef int64_t *read_input(
    InferPlan plan, int position, object item, int64_t *shape, dict names, uint64_t binary_bytes,
    uint64_t max_input_bytes, list values) except NULL:
    cdef TensorPlan *tensor = &plan.tensors[position]
    cdef dict entry = <dict>item if type(item) is dict else {}
    cdef dict parameters
    cdef TensorSpec spec
    cdef str name, datatype
    declared = entry.get("parameters")
    parameters = <dict>declared if type(declared) is dict else {}
    check_source(entry, parameters)
    name = text_of(entry, "name")
    datatype = text_of(entry, "datatype")
    tensor.position = position
    tensor.shape = shape
    shape = read_shape(list_of(entry, "shape"), shape, tensor, name)
    if name in names:
        raise refusals.input_twice(plan.who(), name)
    names[name] = position
    tensor.dtype = <uint8_t>DTYPE_BY_WIRE.get(datatype, 0)
    spec = plan.model.input_by_name.get(name)
    tensor.index = <uint16_t>spec.index if spec is not None else 0xFFFF
    if "shared_memory_region" in parameters:
        read_region(plan, tensor, name, parameters)
    elif "binary_data_size" in parameters:
        read_binary(plan, tensor, name, unsigned(parameters["binary_data_size"], "binary_data_size"), binary_bytes)
    else:
        read_json(plan, tensor, name, entry, max_input_bytes, values)
    if spec is None:
        plan.names[position] = name  # check_fit names it after counting the inputs
    return shape


cdef int check_source(dict entry, dict parameters) except -1:
    cdef bint data = "data" in entry
    cdef bint binary = "binary_data_size" in parameters
    cdef bint shared = "shared_memory_region" in parameters
    if data + binary + shared == 1:
        return 0
    given = " 'data'" * data + " 'binary_data_size'" * binary + " 'shared_memory_region'" * shared
    raise BadRequest(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        f"'shared_memory_region' in 'parameters'. But {'set' + given if given else 'no field is set'}")


cdef int64_t *read_shape(list declared, int64_t *shape, TensorPlan *tensor, str name) except NULL:
    cdef uint64_t dim
    cdef Py_ssize_t i
    if len(declared) > RANK_MAX:
        raise refusals.too_many_dimensions(name, len(declared))
    for i in range(len(declared)):
        dim = unsigned(declared[i], "shape")
        if dim > INT64_TOP:
            raise refusals.impossible_dimension(name, declared)
        shape[i] = <int64_t>dim
    tensor.rank = <uint8_t>len(declared)
    count_elements(tensor, name)
    return shape + len(declared)


cdef int count_elements(TensorPlan *tensor, str name) except -1:
    cdef uint64_t elements = 1
    cdef int i
    for i in range(tensor.rank):
        if tensor.shape[i] == 0:
            tensor.elements = 0
            return 0
    for i in range(tensor.rank):
        if <uint64_t>tensor.shape[i] > INT64_TOP // elements:
            raise BadRequest(
                f"invalid shape for input '{name}': shape {[tensor.shape[k] for k in range(tensor.rank)]} causes total "
                f"element count to exceed maximum size of {INT64_TOP}")
        elements *= <uint64_t>tensor.shape[i]
    tensor.elements = elements
    return 0


cdef int read_binary(InferPlan plan, TensorPlan *tensor, str name, uint64_t nbytes, uint64_t binary_bytes) except -1:
    cdef uint64_t left = binary_bytes - plan.binary_bytes
    if nbytes > left:
        raise BadRequest(
            f"unexpected size for input '{name}', expecting {nbytes - left} additional bytes for model "
            f"'{plan.model.name}' (binary_data_size is {nbytes}, {left} bytes are left behind the JSON; is the request "
            "header Inference-Header-Content-Length set?)")
    tensor.source = FROM_BINARY if nbytes else FROM_NOWHERE
    tensor.nbytes = nbytes
    tensor.offset = plan.binary_bytes
    plan.binary_bytes += nbytes
    return 0


cdef int read_json(
    InferPlan plan, TensorPlan *tensor, str name, dict entry, uint64_t max_input_bytes, list values) except -1:
    cdef uint64_t size = item_bytes(tensor.dtype)
    plan.all_binary = False
    tensor.source = FROM_NOWHERE
    if tensor.elements == 0:
        return 0
    values[tensor.position] = list_of(entry, "data")
    tensor.source = FROM_JSON
    if tensor.dtype == BYTES:
        return 0
    if tensor.dtype == FP16 or tensor.dtype == BF16:
        raise BadRequest(
            f"receiving {'FP16' if tensor.dtype == FP16 else 'BF16'} data via JSON is not supported. Please use the "
            f"binary data format for input {name}")
    if size == 0:
        raise BadRequest(f"invalid datatype for input {name} (got '{entry['datatype']}', known: {', '.join(BY_WIRE)})")
    if tensor.elements > INT64_TOP // size:
        raise BadRequest(
            f"byte size overflow for input '{name}': element count ({tensor.elements}) * data type size ({size}) "
            f"exceeds maximum allowed size ({INT64_TOP})")
    tensor.nbytes = tensor.elements * size
    if tensor.nbytes > max_input_bytes:
        raise refusals.json_input_too_large(name, tensor.nbytes, max_input_bytes)
    return 0


cdef int read_region(InferPlan plan, TensorPlan *tensor, str name, dict parameters) except -1:
    cdef str region = text_of(parameters, "shared_memory_region")
    cdef uint64_t offset = place_number(parameters, "shared_memory_offset", region)
    cdef uint64_t nbytes = place_number(parameters, "shared_memory_byte_size", region)
    tensor.unsized = "shared_memory_byte_size" not in parameters
    return region_input(plan, tensor, name, region, offset, nbytes)


cdef int region_input(
    InferPlan plan, TensorPlan *tensor, str name, str region, uint64_t offset, uint64_t nbytes) except -1:
    find(plan.regions, region).check(offset, nbytes, "input", name)  # as at every use; here because Triton looks before it counts
    plan.names[tensor.position] = region
    plan.regional = True
    tensor.source = FROM_REGION
    tensor.offset = offset
    tensor.nbytes = nbytes
    return 0


cdef int read_outputs(InferPlan plan, list outputs) except -1:
    cdef dict entry, parameters
    for item in outputs:
        entry = <dict>item if type(item) is dict else {}
        declared = entry.get("parameters")
        parameters = <dict>declared if type(declared) is dict else {}
        check_output_parameters(parameters)  # before the name is looked at
        choose_output(plan, text_of(entry, "name"), parameters)
    return 0


cdef InferPlan raw_plan(InferBody body):
    cdef ModelSignature model = body.model
    cdef InferPlan plan = new_plan(model)
    cdef uint64_t nbytes = body.nbytes
    cdef TensorPlan *tensor
    cdef TensorSpec spec
    if nbytes > body.max_input_bytes:
        raise BadRequest(
            f"Raw input has a byte_size ({nbytes} bytes) that exceeds the maximum allowed value of {body.max_input_bytes} "
            "bytes. Use --http-max-input-size to increase the limit.")
    if len(model.inputs) != 1:
        raise BadRequest(
            f"{plan.who()}Raw request must only have 1 input (found 1) to be deduced but got {len(model.inputs)} inputs "
            f"in '{model.name}' model configuration")
    spec = model.inputs[0]
    plan.reserve(1, len(spec.dims) + 1)
    plan.binary_bytes = nbytes
    plan.outputs.binary_default = True
    plan.raw = True
    tensor = &plan.tensors[0]
    tensor.dtype = <uint8_t>spec.dtype
    tensor.shape = plan.shapes
    tensor.nbytes = nbytes
    tensor.source = FROM_BINARY
    deduce_shape(plan, tensor, spec, nbytes)
    return finish(plan, body.forwarded)


cdef int deduce_shape(InferPlan plan, TensorPlan *tensor, TensorSpec spec, uint64_t nbytes) except -1:
    cdef int batched = plan.model.max_batch_size > 0
    cdef uint64_t fixed = item_bytes(spec.dtype) or 1
    cdef int variable = -1
    cdef int i
    plan.shapes[0] = 1
    tensor.rank = <uint8_t>(len(spec.dims) + batched)
    for i in range(len(spec.dims)):
        plan.shapes[i + batched] = spec.dims[i]
        if spec.dims[i] != -1:
            fixed *= spec.dims[i]
            continue
        if variable >= 0:
            raise BadRequest(
                f"{plan.who()}The shape of the raw input '{spec.name}' can not be deduced because there are more than "
                "one variable-sized dimension")
        variable = i + batched
    if spec.dtype == BYTES:
        if variable >= 0 or fixed != 1:
            raise BadRequest(
                f"{plan.who()}For BYTE datatype raw input '{spec.name}', the model must have input shape [1]")
        tensor.nbytes = nbytes + 4  # the assembly puts the length in front
    elif variable >= 0:
        plan.shapes[variable] = <int64_t>(nbytes // fixed) if fixed else 0
    return count_elements(tensor, "raw_input")
