"""The generate extension's bodies: a flat JSON object to tensors and parameters, an answer to such an object.  Layer 2 (wire).

Triton maps by name: a key that is an input of the model becomes that tensor, any other a parameter that only the model
reads: none is reserved, `id` is a parameter besides being the request's id, and `parameters` holds more of the same.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from tisfast.native.memory cimport Arena
from tisfast.wire.draft cimport InferBody, new_draft
from tisfast.wire.infer cimport assemble
from tisfast.wire.infer_plan cimport InferPlan
from tisfast.wire.json_data cimport load_json
from tisfast.wire.json_fields cimport is_parameter
from tisfast.wire.record cimport Answer, InferInput, OutputRef
from tisfast.wire.request cimport finish, new_plan, read_id, read_inputs
from tisfast.wire.respond cimport put_data
from tisfast.wire.signature cimport ModelSignature, TensorSpec
from tisfast.wire.text_buffer cimport TextBuffer

import json

import orjson

from tisfast.errors import BY_STATUS, BadRequest, Internal, TisError
from tisfast.wire import refusals

cdef str NESTED = "parameters"


cdef InferInput read_generate(ModelSignature model, Arena arena, bytes text, uint64_t max_input_bytes):
    cdef InferPlan plan = new_plan(model)
    cdef object doc = load_json(<const unsigned char *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    cdef InferBody body = InferBody.__new__(InferBody)
    cdef list inputs = []
    cdef list values = []
    cdef dict parameters = {}
    if type(doc) is not dict:
        raise Internal("attempt to get members for non-object")
    if "id" in <dict>doc:
        read_id(plan, <dict>doc)
    sort_out(model, <dict>doc, inputs, parameters, True)
    read_inputs(plan, inputs, 0, max_input_bytes, values)
    finish(plan, orjson.dumps(parameters) if parameters else b"")
    # Numbers are hardly ever longer than their text, so one block usually holds record and tensors.
    body.model, body.arena, body.max_input_bytes = model, arena, max_input_bytes
    body.block = arena.take(model.record_room + <uint64_t>len(text))
    return assemble(new_draft(plan, plan.id, values), body, 0)


cdef int sort_out(ModelSignature model, dict values, list inputs, dict parameters, bint top) except -1:
    """Each key becomes an entry of `inputs`, as an inference request has them, or a parameter."""
    cdef TensorSpec spec
    for name, value in values.items():
        spec = model.input_by_name.get(name)
        if top and name == NESTED:
            sort_out_nested(model, value, inputs, parameters)
        elif spec is not None:
            inputs.append(entry(model, spec, value))
        elif is_parameter(value):
            parameters[name] = value
        else:
            raise refusals.neither_input_nor_parameter(name, [each.name for each in model.inputs])
    return 0


cdef int sort_out_nested(ModelSignature model, object value, list inputs, dict parameters) except -1:
    if type(value) is not dict:
        raise Internal(f"Expected JSON object for keyword: '{NESTED}': attempt to access JSON non-object as object")
    try:
        return sort_out(model, <dict>value, inputs, parameters, False)
    except TisError as error:
        raise BY_STATUS[error.status](f"Converting keyword: '{NESTED}': {error.message}") from None


cdef dict entry(ModelSignature model, TensorSpec spec, object value):
    cdef list data = value if type(value) is list else [value]
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape_of(model, spec, len(data)), "data": data}


cdef list shape_of(ModelSignature model, TensorSpec spec, Py_ssize_t count):
    """Fixed dimensions take their part of the elements, the innermost variable one the rest, the others are 1."""
    cdef list shape = ([-1] if model.max_batch_size > 0 else []) + list(spec.dims)
    cdef Py_ssize_t left = count
    cdef Py_ssize_t i
    for dim in shape:
        if dim > 0:
            if left % dim:
                raise misfit(spec, shape, count)
            left //= dim
    for i in reversed(range(len(shape))):
        if shape[i] == -1:
            shape[i], left = left, 1
    if left != 1:
        raise misfit(spec, shape, count)
    return shape


cdef misfit(TensorSpec spec, list shape, Py_ssize_t count):
    return BadRequest(
        f"The schema can not convert input '{spec.name}' to tensor with proper shape (it takes "
        f"[{','.join(map(str, shape))}], and {count} {'value was' if count == 1 else 'values were'} given)")


cdef int render_generate(TextBuffer text, Answer answer) except -1:
    cdef InferInput request = answer.input
    cdef OutputRef *out
    cdef int i
    text.put(b"{", 1)
    if request.id:
        text.put(b'"id":', 5)
        text.put_bytes(orjson.dumps(request.id))
        text.put(b",", 1)
    text.put_bytes(request.model.head_json)
    if len(answer.parameters) > 2:
        put_parameters(text, answer)
    for i in range(answer.count):
        out = &answer.outputs[i]
        if request.requested >> out.index & 1:
            text.put(b",", 1)
            text.put_bytes(orjson.dumps((<TensorSpec>request.model.outputs[out.index]).name))
            text.put(b":", 1)
            put_value(text, answer, out)
    text.put(b"}", 1)
    return 0


# Among the other keys: without braces.  A key of the answer's own is given once, with what it says.
cdef int put_parameters(TextBuffer text, Answer answer) except -1:
    cdef bytes parameters = answer.parameters
    try:
        values = json.loads(parameters)
    except ValueError:  # a number of thousands of digits
        values = {}
    own = {"id", "model_name", "model_version"} if answer.input.id else {"model_name", "model_version"}
    own.update([(<TensorSpec>spec).name for spec in answer.input.model.outputs])
    if not own.isdisjoint(values):
        parameters = json.dumps({key: value for key, value in values.items() if key not in own}).encode()
    if len(parameters) > 2:
        text.put(b",", 1)
        text.put(PyBytes_AS_STRING(parameters) + 1, PyBytes_GET_SIZE(parameters) - 2)
    return 0


cdef int put_value(TextBuffer text, Answer answer, OutputRef *out) except -1:
    """A tensor of one element is that element."""
    cdef uint64_t elements = 1
    cdef int i
    for i in range(out.rank):
        elements *= <uint64_t>out.shape[i]
    if elements != 1:
        text.put(b"[", 1)
    put_data(text, answer, out)
    if elements != 1:
        text.put(b"]", 1)
    return 0


def parse(ModelSignature model, Arena arena, bytes text, *, uint64_t max_input_bytes=1 << 26) -> InferInput:
    """A generate body as a request.  Raises TisError."""
    return read_generate(model, arena, text, max_input_bytes)


def render(Answer answer) -> bytes:
    """An answer as a generate body."""
    cdef TextBuffer text = TextBuffer()
    render_generate(text, answer)
    return text.value()
