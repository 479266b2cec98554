"""A ModelInferRequest becomes a checked InferPlan; statuses, texts and order are Triton's.  Layer 2 (wire).

First the request itself (parameters, names and shapes), then where each input's data are, then the outputs, then
whether all of it fits the model.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from tisfast.wire.draft cimport InferBody
from tisfast.wire.grpc.contents cimport Contents, measure_contents
from tisfast.wire.grpc.cursor cimport FIELD, LEN, NO_FIELD, VARINT, Cursor, Field, cursor, next_field, take_varint
from tisfast.wire.grpc.message_scan cimport ID, INPUTS, MODEL_NAME, OUTPUTS, PARAMETERS, Message
from tisfast.wire.request_parameters cimport choose_output
from tisfast.wire.grpc.values cimport (
    Parameter, SharedPlace, apply_parameters, broken, shared_place, take_parameter, text_of)
from tisfast.wire.infer_plan cimport FROM_BINARY, FROM_CONTENTS, FROM_REGION, InferPlan, TensorPlan
from tisfast.wire.request cimport count_elements, finish, new_plan, region_input
from tisfast.wire.signature cimport ModelSignature, TensorSpec

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.types import BY_WIRE
from tisfast.wire import refusals

cdef enum InputField:
    NAME = 1
    DATATYPE = 2
    SHAPE = 3
    INPUT_PARAMETERS = 4
    CONTENTS = 5

cdef enum:
    OUTPUT_PARAMETERS = 2

cdef dict DTYPE_BY_WIRE = {name: kind.code for name, kind in BY_WIRE.items()}
cdef Py_ssize_t ID_BYTES_MAX = limits.REQUEST_ID_BYTES_MAX
cdef Py_ssize_t RANK_MAX = limits.TENSOR_RANK_MAX
cdef Py_ssize_t SURPLUS_INPUTS_MAX = limits.SURPLUS_INPUTS_MAX
cdef Py_ssize_t OUTPUTS_ASKED_MAX = limits.OUTPUTS_MAX + limits.SURPLUS_INPUTS_MAX


cdef class InputMessage:
    """One InferInputTensor, read once."""

    cdef const unsigned char *data
    cdef uint64_t nbytes
    cdef str name, datatype
    cdef list shape
    cdef uint64_t rank          # as sent; `shape` keeps no more than TENSOR_RANK_MAX of them
    cdef dict parameters
    cdef bint has_contents


cdef InferPlan parse_message(InferBody body, Message message, list values):
    cdef ModelSignature model = body.model
    cdef InferPlan plan = new_plan(model)
    cdef Cursor c = cursor(message.data, message.nbytes)
    cdef dict parameters = {}
    cdef list inputs = []
    cdef list outputs = []
    cdef Py_ssize_t input_count = 0
    cdef Py_ssize_t inputs_max = len(model.inputs) + SURPLUS_INPUTS_MAX
    cdef Field field
    plan.regions = body.regions
    while next_field(&c, &field) == FIELD:  # scanned before: it is whole
        if field.kind != LEN:
            continue
        if field.number == MODEL_NAME:
            check_name(model, text_of(&field))
        elif field.number == ID:
            plan.id = checked_id(&field)
        elif field.number == PARAMETERS:
            take_parameter(&field, parameters)
        elif field.number == INPUTS:
            input_count += 1  # all are counted, for the error, and those that may be are kept
            if input_count <= inputs_max:
                inputs.append(read_input(&field))
        elif field.number == OUTPUTS:
            if len(outputs) >= OUTPUTS_ASKED_MAX:
                raise BadRequest(f"the request asks for more than {OUTPUTS_ASKED_MAX} outputs of model '{model.name}'")
            outputs.append(read_output(&field))
    custom = apply_parameters(plan, parameters, body.forwarded)
    if input_count > inputs_max:  # before anything is reserved for them
        raise refusals.too_many_inputs(plan.who(), len(model.inputs), input_count, model.name)
    place_inputs(plan, message, inputs, values)
    choose_outputs(plan, outputs)
    return finish(plan, custom)


# The model was chosen by the name that comes first; of several the last would count.
cdef int check_name(ModelSignature model, str name) except -1:
    if name == model.name:
        return 0
    raise BadRequest(f"the request names two models, '{name}' and '{model.name}'; send model_name once")


cdef str checked_id(const Field *field):
    if field.nbytes > <uint64_t>ID_BYTES_MAX:
        raise BadRequest(f"the request's id has {field.nbytes} bytes, {ID_BYTES_MAX} is the limit")
    return text_of(field)


cdef InputMessage read_input(const Field *message):
    cdef InputMessage input = InputMessage.__new__(InputMessage)
    cdef Cursor c = cursor(message.data, message.nbytes)
    cdef Field field
    cdef int state
    input.data = message.data
    input.nbytes = message.nbytes
    input.name = input.datatype = ""
    input.shape = []
    input.parameters = {}
    while True:
        state = next_field(&c, &field)
        if state != FIELD:
            break
        if field.number == SHAPE:
            read_shape(&field, input)
        elif field.kind != LEN:
            continue
        elif field.number == NAME:
            input.name = text_of(&field)
        elif field.number == DATATYPE:
            input.datatype = text_of(&field)
        elif field.number == INPUT_PARAMETERS:
            take_parameter(&field, input.parameters)
        elif field.number == CONTENTS:
            input.has_contents = True
    if state != NO_FIELD:
        raise broken()
    return input


# Packed or one by one.
cdef int read_shape(const Field *field, InputMessage input) except -1:
    cdef Cursor c
    cdef uint64_t dim
    if field.kind == VARINT:
        take_dim(input, field.value)
    if field.kind != LEN:
        return 0
    c = cursor(field.data, field.nbytes)
    while c.at < c.end:
        if not take_varint(&c, &dim):
            raise broken()
        take_dim(input, dim)
    return 0


# All are counted, for the error, and those that may be are kept.
cdef inline int take_dim(InputMessage input, uint64_t dim) except -1:
    input.rank += 1
    if input.rank <= <uint64_t>RANK_MAX:
        input.shape.append(<int64_t>dim)
    return 0


cdef tuple read_output(const Field *message):
    cdef Cursor c = cursor(message.data, message.nbytes)
    cdef dict parameters = {}
    cdef str name = ""
    cdef Field field
    cdef int state
    while True:
        state = next_field(&c, &field)
        if state != FIELD:
            break
        if field.kind == LEN and field.number == NAME:
            name = text_of(&field)
        elif field.kind == LEN and field.number == OUTPUT_PARAMETERS:
            take_parameter(&field, parameters)
    if state != NO_FIELD:
        raise broken()
    return name, parameters


cdef int place_inputs(InferPlan plan, Message message, list inputs, list values) except -1:
    cdef Py_ssize_t n = len(inputs)
    cdef Py_ssize_t dims = 0
    cdef InputMessage input
    cdef int64_t *shape
    cdef set names = set()
    cdef uint32_t raws = 0
    cdef int i
    for input in inputs:
        check_shape(input)
        dims += len(input.shape)
    plan.reserve(n, dims)
    values.extend(plan.names)
    shape = plan.shapes
    for i in range(n):
        input = <InputMessage>inputs[i]
        shape = declare(plan, &plan.tensors[i], input, i, shape)
        if input.name in names:
            raise refusals.input_twice(plan.who(), input.name)
        names.add(input.name)
    for i in range(n):
        raws += find_data(plan, &plan.tensors[i], <InputMessage>inputs[i], message, raws, values)
    if raws != message.raw_count:
        raise BadRequest(
            f"unexpected raw_input_contents: {message.raw_count} entries for {raws} inputs without data elsewhere in the "
            f"request for model '{plan.model.name}'")
    for i in range(n):
        if plan.tensors[i].index == 0xFFFF:
            plan.names[i] = (<InputMessage>inputs[i]).name  # check_fit names it after counting the inputs
    return 0


cdef int check_shape(InputMessage input) except -1:
    if input.rank > <uint64_t>RANK_MAX:
        raise refusals.too_many_dimensions(input.name, input.rank)
    for dim in input.shape:
        if dim < 0:
            raise refusals.impossible_dimension(input.name, input.shape)
    return 0


# Returns where the next input's shape goes.
cdef int64_t *declare(
    InferPlan plan, TensorPlan *tensor, InputMessage input, int position, int64_t *shape) except NULL:
    cdef TensorSpec spec = plan.model.input_by_name.get(input.name)
    cdef Py_ssize_t i
    tensor.position = <uint32_t>position
    tensor.index = <uint16_t>spec.index if spec is not None else 0xFFFF
    tensor.dtype = <uint8_t>DTYPE_BY_WIRE.get(input.datatype, 0)
    tensor.shape = shape
    tensor.rank = <uint8_t>len(input.shape)
    for i in range(len(input.shape)):
        shape[i] = input.shape[i]
    count_elements(tensor, input.name)
    return shape + len(input.shape)


# Returns 1 when it takes the next raw entry.
cdef int find_data(
    InferPlan plan, TensorPlan *tensor, InputMessage input, Message message, uint32_t raws, list values) except -1:
    cdef SharedPlace place = shared_place(input.name, input.parameters) if input.parameters else None
    cdef Contents contents
    if place is not None and place.region is not None:
        if input.has_contents:
            raise BadRequest(
                f"unexpected 'content' provided when using shared memory for input tensor '{input.name}' for model "
                f"'{plan.model.name}'")
        region_input(
            plan, tensor, input.name, place.region, <uint64_t>place.offset, <uint64_t>place.nbytes)
        return 0
    if input.has_contents:
        if message.raw_count:
            raise BadRequest(
                f"contents field must not be specified when using raw_input_contents for '{input.name}' for model "
                f"'{plan.model.name}'")
        contents = measure_contents(
            input.data, input.nbytes, tensor.dtype, input.name, input.datatype, plan.model.name)
        plan.all_binary = False
        values[tensor.position] = contents
        tensor.source = FROM_CONTENTS
        tensor.nbytes = contents.nbytes
        return 0
    if raws >= message.raw_count:
        raise BadRequest(f"unable to find data for input tensor '{input.name}' for model '{plan.model.name}' in request.")
    tensor.source = FROM_BINARY
    tensor.nbytes = message.raws[raws].nbytes
    tensor.offset = message.raws[raws].at
    plan.binary_bytes += tensor.nbytes
    return 1


cdef int choose_outputs(InferPlan plan, list outputs) except -1:
    cdef dict parameters
    cdef str name
    for name, parameters in outputs:
        choose_output(plan, name, output_parameters(name, parameters) if parameters else {})
    return 0


# As choose_output takes them: checked values under JSON's names.
cdef dict output_parameters(str name, dict parameters):
    cdef SharedPlace place = shared_place(name, parameters)
    cdef Parameter classification = parameters.get("classification")
    cdef dict values = {}
    if classification is not None:
        if classification.kind != "int64_param":
            raise BadRequest(
                f"invalid value type for 'classification' parameter, expected int64_param (got "
                f"{classification.kind or 'none'})")
        if classification.value <= 0:
            raise BadRequest(
                f"invalid value for 'classification' parameter, expected >= 0 (0 classes are none; got "
                f"{classification.value})")
        values["classification"] = classification.value
    if place.region is None:
        return values
    if classification is not None:
        raise BadRequest("output can't set both 'shared_memory_region' and 'classification'")
    values["shared_memory_region"] = place.region
    values["shared_memory_offset"] = unsigned(place.offset)
    values["shared_memory_byte_size"] = unsigned(place.nbytes)
    return values


# The bounds check says what is wrong with what was negative.
cdef object unsigned(int64_t value):
    return <uint64_t>value
