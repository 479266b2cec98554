"""The tensors of a request to an ensemble, between its steps; see ensemble_scope.pxd.  Layer 3 (engine)."""

cimport cython
from libc.stdint cimport uint16_t
from tisfast.engine.ensemble_graph cimport GraphOutput, Selection, StepPlan, fit_shape, reshaped
from tisfast.native.memory cimport Arena, Block
from tisfast.wire.compose cimport ComposeFields
from tisfast.wire.infer_plan cimport OutputChoice, OutputForm
from tisfast.wire.joined_answer cimport join_answer
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.signature cimport ModelSignature, TensorSpec
from tisfast.wire.tensors cimport Tensor, new_tensor

import json

import orjson

from tisfast.errors import BadRequest, Unavailable

cdef uint16_t SEQUENCE_START = 1
cdef uint16_t SEQUENCE_END = 2
cdef bytes NO_SEQUENCE = b'{"sequence_id":0,"sequence_start":false,"sequence_end":false}'


@cython.freelist(64)
cdef class ScopeTensor:
    """See ensemble_scope.pxd."""


@cython.freelist(64)
cdef class Scope:
    """See ensemble_scope.pxd."""


cdef Scope new_scope(Selection selection, Scope parent, int level):
    cdef Scope scope = Scope.__new__(Scope)
    scope.parent = parent
    scope.level = level
    scope.tensors = [None] * len(selection.uses)
    scope.uses = list(selection.uses)
    scope.waits = list(selection.waits)
    scope.outputs_left = <int>len(selection.wanted)
    return scope


cdef int dissolve(Scope root) except -1:
    cdef Scope scope
    cdef list left = [root]
    while left:
        scope = <Scope>left.pop()
        if scope.children is not None:
            left.extend(scope.children)
        scope.children = scope.tensors = None
    return 0


cdef list step_inputs(Scope scope, StepPlan step, ModelSignature signature, ComposeFields fields):
    cdef list inputs = []
    cdef TensorSpec spec
    cdef ScopeTensor held
    cdef bint told = False
    for name, number in step.inputs:
        held = <ScopeTensor>scope.tensors[number]
        if held.told and not told:
            told = True
            fields.correlation, fields.sequence_flags = held.correlation, held.sequence_flags
        if held.tensor is None:
            continue
        spec = signature.input_by_name.get(name)
        shape = held.tensor.shape
        if spec is not None:
            shape = fit_shape(shape, spec.dims, signature.max_batch_size > 0, held.batch)
        inputs.append(held.tensor.renamed(name, shape))
    return inputs


cdef dict step_ways(StepPlan step, ModelSignature signature, Selection selection, InferInput request):
    cdef OutputChoice choice = <OutputChoice>request.outputs
    cdef GraphOutput graph_output
    cdef OutputForm way
    cdef dict ways = {}
    for name, number in step.outputs.items():
        if selection.uses[number] != 1:
            continue
        for graph_output in selection.graph_outputs:
            way = choice.ways.get((<TensorSpec>request.model.output_by_name[graph_output.name]).index)
            if graph_output.tensor == number and way is not None and way.region is not None:
                ways[(<TensorSpec>signature.output_by_name[name]).index] = way
    return ways or None


cdef Answer answer_of(Scope scope, list graph_outputs, InferInput request):
    cdef ModelSignature signature = request.model
    cdef list tensors = []
    cdef bytes parameters = b""
    cdef GraphOutput graph_output
    cdef ScopeTensor held
    for graph_output in graph_outputs:
        held = <ScopeTensor>scope.tensors[graph_output.tensor]
        if held.tensor is None:
            continue
        shape = fit_shape(held.tensor.shape, graph_output.inner_dims, signature.max_batch_size > 0, held.batch)
        shape = reshaped(shape, graph_output.inner_dims, graph_output.dims)
        tensors.append(held.tensor.renamed(graph_output.name, shape))
        if held.told:
            parameters = sequence_parameters(request.correlation, held)
    scope.tensors = None
    return join_answer(request, tensors, parameters)


cdef Tensor moved(Tensor tensor, Arena arena):
    cdef Block block
    try:
        block = arena.take(tensor.nbytes or 1)
    except Unavailable as error:
        raise Unavailable(
            f"the responses of a decoupled step wait for an instance of the model that gives them, and no more fit: "
            f"{error.message}. Give that model's work to two models, or send fewer responses at a time") from None
    tensor.read(0, block.data, tensor.nbytes)
    return new_tensor(tensor.name, tensor.dtype, tensor.shape, arena, block.offset, tensor.nbytes, block)


cdef tuple sequence_of(bytes parameters, object correlation, object flags):
    values = json.loads(parameters)  # models give what Python's writes: NaN, and half a surrogate
    if "sequence_id" in values:
        correlation = values["sequence_id"]
        if type(correlation) is int:
            correlation &= 0xFFFFFFFFFFFFFFFF
        elif type(correlation) is not str:
            raise BadRequest(
                "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING")
    if not values.keys() & {"sequence_id", "sequence_start", "sequence_end"}:
        return correlation, flags
    flags = 0
    for name, bit in (("sequence_start", SEQUENCE_START), ("sequence_end", SEQUENCE_END)):
        value = values.get(name, False)
        if type(value) is not bool:
            raise BadRequest(f"expect parameter '{name}' to be TRITONSERVER_PARAMETER_BOOL")
        flags |= bit if value else 0
    return correlation, flags


# Triton's ensembles tell their clients so with every answer.
cdef bytes sequence_parameters(object asked, ScopeTensor held):
    if held.correlation == 0 and held.sequence_flags == 0:
        return NO_SEQUENCE
    value = held.correlation
    if type(asked) is not type(value):
        value = type(asked)()
    if type(value) is int and value >> 63:
        value -= 1 << 64  # as Triton prints it
    return orjson.dumps({
        "sequence_id": value,
        "sequence_start": held.sequence_flags & SEQUENCE_START != 0,
        "sequence_end": held.sequence_flags & SEQUENCE_END != 0,
    })
