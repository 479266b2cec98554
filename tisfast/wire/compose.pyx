"""Requests made of tensors that are there already; see compose.pxd.  Layer 2 (wire).

What is small is copied: one page of another process' memory costs a worker more than copying a few KB costs the server,
and pages are what can be shared (tuning.REFERENCE_BYTES_MIN).
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from tisfast.native.memory cimport Arena, Block
from tisfast.wire.align cimport align64
from tisfast.wire.draft cimport Draft, new_draft
from tisfast.wire.infer_plan cimport FROM_BINARY, FROM_NOWHERE, InferPlan, TensorPlan
from tisfast.wire.late_copies cimport late_copy
from tisfast.wire.outputs cimport output_places, place_outputs
from tisfast.wire.record cimport Answer, InferInput, OutputRef, RequestHead, lent_tensor
from tisfast.wire.request cimport count_elements, finish, new_plan
from tisfast.wire.signature cimport ModelSignature, TensorSpec
from tisfast.wire.tensors cimport LENT, SHARE_SHIFT, STAYS, ForeignInput, Tensor, new_foreign, new_tensor, referred

import struct

from tisfast import limits, tuning, types
from tisfast.errors import Internal
from tisfast.wire import refusals

cdef int NO_DEVICE = types.NO_DEVICE
cdef Py_ssize_t RANK_MAX = limits.TENSOR_RANK_MAX
cdef Py_ssize_t FOREIGN_INPUTS_MAX = limits.FOREIGN_INPUTS_MAX
cdef uint64_t OFFSET_MASK = ((<uint64_t>1) << SHARE_SHIFT) - 1
cdef object RECORD_HEAD = struct.Struct("<IHHQQQIIII")
cdef object RECORD_ENTRY = struct.Struct("<HBBI")
cdef object RECORD_PLACE = struct.Struct("<QQ")


cdef class ComposeFields:
    """See compose.pxd."""

    def __cinit__(self):
        self.id = ""
        self.correlation = 0
        self.parameters = b""
        self.device_wanted = NO_DEVICE


cdef InferInput compose(ModelSignature model, Arena arena, list tensors, ComposeFields fields):
    cdef InferPlan plan = planned(model, tensors, fields)
    cdef Draft draft = new_draft(plan, plan.id, None)
    cdef InferInput request = InferInput.__new__(InferInput)
    plan.template.output_places = output_places(plan, fields.ways)
    cdef Py_ssize_t id_bytes
    cdef const char *id_text = PyUnicode_AsUTF8AndSize(plan.id, &id_bytes)
    cdef uint64_t record_bytes = plan.template.nbytes(id_bytes)
    cdef list foreign = []
    request.model = model
    request.id = plan.id
    request.batch = plan.batch
    request.priority = plan.priority
    request.timeout_us = plan.timeout_us
    request.correlation = plan.correlation
    request.sequence_flags = plan.flags
    request.requested = plan.requested
    request.shape_key = plan.shape_key
    request.outputs = plan.outputs
    request.for_model = True
    request.device_wanted = fields.device_wanted
    request.record_block = arena.take(align64(record_bytes) + copied_bytes(plan, tensors))
    request.record_offset = request.record_block.offset
    request.record_bytes = <uint32_t>record_bytes
    request.stays = fields.device_wanted >= 0 and fields.device_wanted == model.device_outputs and not model.copies_devices
    place(draft, request, request.record_block, align64(record_bytes), tensors, foreign)
    plan.template.write(request.record_block.data, draft.places, id_text, <uint32_t>id_bytes)
    if request.stays:
        (<RequestHead *>request.record_block.data).flags |= STAYS
    request.foreign = foreign or None
    if plan.template.output_places:
        place_outputs(request, plan, fields.ways)
    if request.foreign is not None:
        request.set_foreign(plan.template, request.foreign)
    return request


# Checked as a client's request is; plan.tensors[i].position is that of its tensor in `tensors`.
cdef InferPlan planned(ModelSignature model, list tensors, ComposeFields fields):
    cdef InferPlan plan = new_plan(model)
    cdef Py_ssize_t dims = 0
    cdef int64_t *shape
    cdef Tensor tensor
    cdef set names = set()
    cdef int i
    plan.id = fields.id
    plan.priority = fields.priority
    plan.timeout_us = fields.timeout_us
    plan.correlation = fields.correlation
    plan.flags = fields.sequence_flags
    if fields.requested is not None:
        plan.requested = requested_bits(plan, fields.requested)
    for tensor in tensors:
        dims += len(tensor.shape)
    plan.reserve(len(tensors), dims)
    shape = plan.shapes
    for i in range(plan.count):
        tensor = <Tensor>tensors[i]
        if tensor.name in names:
            raise refusals.input_twice(plan.who(), tensor.name)
        names.add(tensor.name)
        shape = declare(plan, &plan.tensors[i], tensor, i, shape)
    return finish(plan, fields.parameters)


# Returns where the next tensor's shape goes.
cdef int64_t *declare(InferPlan plan, TensorPlan *planned, Tensor tensor, int position, int64_t *shape) except NULL:
    cdef TensorSpec spec = plan.model.input_by_name.get(tensor.name)
    cdef Py_ssize_t rank = len(tensor.shape)
    cdef Py_ssize_t i
    if rank > RANK_MAX:
        raise refusals.too_many_dimensions(tensor.name, rank)
    planned.position = <uint32_t>position
    planned.index = <uint16_t>spec.index if spec is not None else 0xFFFF
    planned.dtype = <uint8_t>tensor.dtype
    planned.rank = <uint8_t>rank
    planned.shape = shape
    planned.nbytes = tensor.nbytes
    planned.source = FROM_BINARY if tensor.nbytes else FROM_NOWHERE
    for i in range(rank):
        shape[i] = tensor.shape[i]
        if shape[i] < 0:
            raise refusals.impossible_dimension(tensor.name, list(tensor.shape))
    count_elements(planned, tensor.name)
    if spec is None:
        plan.names[position] = tensor.name  # check_fit names it after counting the inputs
    return shape + rank


cdef uint64_t requested_bits(InferPlan plan, names) except? 0xFFFFFFFFFFFFFFFF:
    cdef TensorSpec spec
    cdef uint64_t bits = 0
    for name in names:
        spec = plan.model.output_by_name.get(name)
        if spec is None:
            raise refusals.unknown_output(name, plan.model.name, plan.model.output_by_name)
        bits |= <uint64_t>1 << spec.index
    return bits


# Bytes of what is copied, each tensor's rounded up to 64.
cdef uint64_t copied_bytes(InferPlan plan, list tensors):
    cdef Tensor tensor
    cdef uint64_t total = 0
    cdef int references = 0
    for tensor in tensors:
        if references < FOREIGN_INPUTS_MAX and referred(plan.model, tensor):
            references += 1
        else:
            total += align64(tensor.nbytes)
    return total


# Copies what is small, from `free` on in the block, and notes where each input lies; the order of the decisions is that of
# copied_bytes.
cdef int place(
        Draft draft, InferInput request, Block block, uint64_t free, list tensors, list foreign) except -1:
    cdef InferPlan plan = draft.plan
    cdef dict taken = {}
    cdef Tensor tensor
    cdef int i
    for i in range(len(tensors)):
        tensor = <Tensor>tensors[i]
        if len(foreign) < FOREIGN_INPUTS_MAX and referred(plan.model, tensor):
            taken[i] = new_foreign(tensor, 0)
            foreign.append(taken[i])
            continue
        if tensor.file.device >= 0:
            request.copy_later(late_copy(tensor, 0, tensor.nbytes, block, free))
        elif tensor.nbytes:
            tensor.read(0, block.data + free, tensor.nbytes)
        taken[i] = block.offset + (free if tensor.nbytes else 0)
        free += align64(tensor.nbytes)
    for i in range(plan.count):  # by input index now
        where = taken[plan.tensors[i].position]
        draft.places[2 * i] = 0
        draft.places[2 * i + 1] = plan.tensors[i].nbytes
        if isinstance(where, ForeignInput):
            (<ForeignInput>where).position = <uint32_t>i
        else:
            draft.places[2 * i] = <uint64_t>where
    return 0


cdef list tensors_of(Answer answer):
    cdef InferInput request = answer.input
    cdef list found = []
    cdef OutputRef *out
    cdef int i, k
    if answer.tensors is not None:
        return list(answer.tensors)
    for i in range(answer.count):
        out = &answer.outputs[i]
        spec = <TensorSpec>request.model.outputs[out.index]
        shape = tuple([out.shape[k] for k in range(out.rank)])
        found.append(output_tensor(answer, out, spec.name, shape))
    return found


cdef Tensor output_tensor(Answer answer, OutputRef *out, str name, tuple shape):
    cdef ForeignInput foreign
    cdef Tensor tensor
    cdef Arena arena
    cdef Block copy
    if out.place >> SHARE_SHIFT == LENT:
        return lent_tensor(answer, out, name, shape)
    # Kept is what the tensor lies in and nothing else: else the last tensor of a long chain would keep all before it.
    for copy in answer.copies or ():  # they lie in the request's arena, and are the answer's alone
        if copy.data <= out.data < copy.data + copy.nbytes:
            return new_tensor(
                name, out.dtype, shape, copy.arena, <uint64_t>(out.data - copy.arena.base), out.nbytes, copy)
    for arena, keep in ((answer.block.arena, answer.block), (answer.input.arena(), answer.input)):
        if arena.base <= out.data <= arena.base + arena.nbytes:
            return new_tensor(name, out.dtype, shape, arena, <uint64_t>(out.data - arena.base), out.nbytes, keep)
    foreign = answer.input.foreign_at(out.place, out.nbytes)  # an input from elsewhere that was passed through
    tensor = foreign.tensor
    return new_tensor(
        name, out.dtype, shape, tensor.file, tensor.offset + (out.place - foreign.place), out.nbytes,
        tensor.keep)


cdef list tensors_of_input(InferInput request):
    cdef ModelSignature model = request.model
    cdef bytes record = request.record
    cdef list found = []
    signature_bytes, count = RECORD_HEAD.unpack_from(record)[:2]
    at = RECORD_HEAD.size
    places = (at + signature_bytes + 7) & ~7
    for i in range(count):
        index, code, rank, _ = RECORD_ENTRY.unpack_from(record, at)
        shape = struct.unpack_from(f"<{rank}q", record, at + RECORD_ENTRY.size)
        at += RECORD_ENTRY.size + 8 * rank
        offset, nbytes = RECORD_PLACE.unpack_from(record, places + 16 * i)
        found.append(input_tensor(request, i, (<TensorSpec>model.inputs[index]).name, code, shape, offset, nbytes))
    return found


cdef Tensor input_tensor(
        InferInput request, int position, str name, int dtype, tuple shape, uint64_t offset, uint64_t nbytes):
    cdef ForeignInput foreign
    if request.foreign is not None:
        for foreign in request.foreign:
            if foreign.position == <uint32_t>position:
                return foreign.tensor.renamed(name, shape)
    return tensor_at(request, name, dtype, shape, offset, nbytes)


cdef Tensor tensor_at(InferInput request, str name, int dtype, tuple shape, uint64_t place, uint64_t nbytes):
    cdef ForeignInput foreign
    cdef Tensor tensor
    if request.owns(place, nbytes):
        return new_tensor(name, dtype, shape, request.arena(), place, nbytes, request)
    foreign = request.foreign_at(place, nbytes)
    if foreign is None:
        raise Internal(
            f"tensor '{name}' at share {place >> SHARE_SHIFT}, offset {place & OFFSET_MASK}, {nbytes} bytes lies outside "
            f"the memory of this request to model '{request.model.name}'")
    tensor = foreign.tensor
    return new_tensor(name, dtype, shape, tensor.file, tensor.offset + (place - foreign.place), nbytes, request)


def compose_request(ModelSignature model, Arena arena, list tensors, ComposeFields fields=None) -> InferInput:
    """compose(), for tests and tools."""
    return compose(model, arena, tensors, fields if fields is not None else ComposeFields())


def aim(InferInput request, uint16_t share) -> list:
    """The places of a request's foreign inputs for a worker that knows their files by this id, as a link sets them."""
    cdef ForeignInput foreign
    for foreign in request.foreign or ():
        request.aim(foreign, share)
    return [(<ForeignInput>each).place for each in request.foreign or ()]


def answer_tensors(Answer answer) -> list:
    """tensors_of(), for tests and tools."""
    return tensors_of(answer)


def input_tensors(InferInput request) -> list:
    """tensors_of_input(), for tests and tools."""
    return tensors_of_input(request)
