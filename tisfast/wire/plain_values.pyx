"""Requests and answers as plain values; see plain_values.pxd.  Layer 2 (wire).

A codec process parses a body into blocks that the server maps, too, so of a request only this travels: where its record
lies, and what the engine and the fronts know of it.  Of an answer: where its outputs lie, and how they were asked for.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Malloc
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.native.memory cimport Arena, Block, MemoryFile
from tisfast.native.region cimport Regions
from tisfast.wire.infer_plan cimport OutputChoice, OutputForm
from tisfast.wire.late_copies cimport LateCopy, region_copy
from tisfast.wire.outputs cimport into_region, prepare
from tisfast.wire.record cimport Answer, InferInput, OutputRef, RequestHead, layout_of
from tisfast.wire.signature cimport ModelSignature, TensorSpec
from tisfast.wire.tensors cimport ForeignInput, Tensor

from tisfast.errors import Internal

cdef int NOWHERE = -1  # the position of what lies in no block or file


# ---- models

def describe_model(ModelSignature model) -> tuple:
    """All that the codecs must know of it."""
    cdef TensorSpec spec
    inputs = [(spec.name, spec.dtype, spec.dims, spec.optional, spec.ragged) for spec in model.inputs]
    outputs = [(spec.name, spec.dtype, spec.dims, spec.labels) for spec in model.outputs]
    return model.name, model.version, model.max_batch_size, model.decoupled, inputs, outputs


def rebuild_model(tuple description) -> ModelSignature:
    """Rebuild the signature in another process, where tensors in clients' memory are copied: it cannot map them."""
    cdef ModelSignature model = ModelSignature(*description)
    model.copies_regions = True
    return model


# ---- requests

cdef tuple describe_input(InferInput request, list blocks):
    return (
        position_of(request.body, blocks), position_of(request.extra, blocks), request.record_offset, request.record_bytes,
        request.id, request.batch, request.priority, request.timeout_us, request.correlation, request.sequence_flags,
        request.requested, request.shape_key, describe_choice(<OutputChoice>request.outputs),
        [described_copy(copy, blocks) for copy in request.uncopied or ()])


def described_copy(LateCopy copy, list blocks) -> tuple:
    return (
        copy.tensor.name, copy.region, copy.tensor.offset, copy.nbytes, position_of(copy.block, blocks), copy.at, copy.elements,
        copy.who)


cdef int position_of(Block block, list blocks) except -2:
    cdef int i
    if block is None:
        return NOWHERE
    for i in range(len(blocks)):
        if blocks[i] is block:
            return i
    raise Internal("a request lies in a block that is none of its own")


cdef Block block_at(int position, list blocks):
    if position == NOWHERE:
        return None
    if not 0 <= position < len(blocks):
        raise Internal(f"a codec named block {position}, and had {len(blocks)}")
    return <Block>blocks[position]


cdef InferInput rebuild_input(ModelSignature model, tuple description, list blocks, regions):
    cdef InferInput request = InferInput.__new__(InferInput)
    body, extra, request.record_offset, request.record_bytes, *rest = description
    request.model = model
    request.body, request.extra = block_at(body, blocks), block_at(extra, blocks)
    request.id, request.batch, request.priority, request.timeout_us, *rest = rest
    request.correlation, request.sequence_flags, request.requested, request.shape_key, choice, copies = rest
    check_record(request)
    for copy in copies:
        request.copy_later(rebuilt_copy(copy, blocks, <Regions?>regions))
    request.outputs = rebuild_choice(choice)
    if (<OutputChoice>request.outputs).in_regions:
        request.outputs = (<OutputChoice>request.outputs).bind(<Regions?>regions, model)
        request.shared_outputs = (<OutputChoice>request.outputs).shared
    return request


cdef LateCopy rebuilt_copy(tuple description, list blocks, Regions regions):
    """What it names is looked up here: a client may have changed it meanwhile."""
    cdef LateCopy copy
    cdef Block block
    name, region_name, offset, nbytes, position, at, elements, who = description
    region = regions.find(region_name)
    region.check(offset, nbytes, "input", name)
    block = block_at(position, blocks)
    if region.device < 0 or block is None or at > block.nbytes or nbytes > block.nbytes - at:
        raise Internal(f"a codec process asked for {nbytes} bytes of region '{region_name}' at {at}, outside its blocks")
    copy = region_copy(name, region, offset, nbytes, block, at)
    copy.elements, copy.who = elements, who
    return copy


cdef int check_record(InferInput request) except -1:
    """The worker believes the places in it."""
    cdef const RequestHead *head
    cdef const uint64_t *places
    cdef uint64_t need = sizeof(RequestHead)
    cdef int i
    if request.body is None and request.extra is None or request.record_bytes < need or (
            not request.owns(request.record_offset, request.record_bytes)):
        raise misplaced(request, "its record", request.record_offset, request.record_bytes)
    head = <const RequestHead *>request.address(request.record_offset)
    need += ((<uint64_t>head.signature_bytes + 7) & ~<uint64_t>7)
    places = <const uint64_t *>(<const unsigned char *>head + need)
    need += 16 * <uint64_t>head.count + head.id_bytes + head.parameters_bytes + head.correlation_bytes
    if need > request.record_bytes or head.count > len(request.model.inputs):
        raise misplaced(request, f"a record of {head.count} inputs", request.record_offset, need)
    for i in range(head.count):
        if places[2 * i + 1] and not request.owns(places[2 * i], places[2 * i + 1]):
            raise misplaced(request, f"input {i}", places[2 * i], places[2 * i + 1])
    return 0


cdef misplaced(InferInput request, str what, uint64_t offset, uint64_t nbytes):
    return Internal(
        f"a codec process gave a broken request for model '{request.model.name}': {what} at offset {offset}, {nbytes} bytes, "
        "lies outside its blocks")


# ---- how outputs are given

cdef tuple describe_choice(OutputChoice choice):
    cdef list ways = None
    cdef OutputForm way
    if choice.ways is not None:
        ways = [
            (index, way.classes, way.region, way.offset, way.nbytes, way.unsized) for index, way in choice.ways.items()]
    return (
        choice.binary_default, choice.listed, choice.in_regions, choice.empty_final, choice.binary, choice.special, ways)


cdef OutputChoice rebuild_choice(tuple description):
    cdef OutputChoice choice = OutputChoice.__new__(OutputChoice)
    cdef OutputForm way
    choice.binary_default, choice.listed, choice.in_regions, choice.empty_final, *rest = description
    choice.binary, choice.special, ways = rest
    if ways is not None:
        choice.ways = {}
        for index, classes, region, offset, nbytes, unsized in ways:
            way = OutputForm.__new__(OutputForm)
            way.classes, way.region, way.offset, way.nbytes = classes, region, offset, nbytes
            way.unsized = unsized
            choice.ways[index] = way
    return choice


# ---- answers

cdef tuple describe_answer(Answer answer, list files):
    cdef InferInput request = answer.input
    cdef OutputChoice choice = <OutputChoice>request.outputs
    cdef OutputRef *out
    cdef list places = []
    cdef int i
    for i in range(answer.count):
        out = &answer.outputs[i]
        if into_region(answer, out):
            prepare(answer, out)
            places.append((NOWHERE, 0, out.nbytes))
        else:
            places.append(place_of(answer, i, files))
    return (
        request.id, request.batch, request.requested, describe_choice(choice), answer.signature, answer.count,
        answer.parameters, places)


cdef tuple place_of(Answer answer, int i, list files):
    """Position among `files`, offset there, bytes."""
    cdef OutputRef *out = &answer.outputs[i]
    cdef MemoryFile file = file_of(answer, i)
    cdef int position
    if file is None or out.nbytes == 0:
        return NOWHERE, 0, out.nbytes
    for position in range(len(files)):
        if files[position] is file:
            break
    else:
        position = <int>len(files)
        files.append(file)
    return position, <uint64_t>(out.data - file.base), out.nbytes


cdef MemoryFile file_of(Answer answer, int i):
    """The memory of output i; None where it cannot be read."""
    cdef OutputRef *out = &answer.outputs[i]
    cdef MemoryFile file
    cdef ForeignInput foreign
    cdef list candidates = []
    if out.data == NULL:
        return None
    if answer.tensors is not None:
        candidates.append((<Tensor>answer.tensors[i]).file)
    if answer.block is not None:
        candidates.append(answer.block.arena)
    if answer.input.extra is not None or answer.input.body is not None or answer.input.record_block is not None:
        candidates.append(answer.input.arena())
    if answer.input.foreign is not None:
        candidates += [foreign.tensor.file for foreign in answer.input.foreign if not foreign.tensor.file.guarded]
    for file in candidates:
        if file.base <= out.data and <uint64_t>(out.data - file.base) <= file.nbytes and (
                out.nbytes <= file.nbytes - <uint64_t>(out.data - file.base)):
            return file
    raise Internal(f"output {i} of an answer of model '{answer.input.model.name}' lies in no memory that it has")


cdef Answer rebuild_answer(ModelSignature model, tuple description, list bases):
    cdef Answer answer = Answer.__new__(Answer)
    cdef InferInput request = InferInput.__new__(InferInput)
    cdef OutputRef *out
    cdef int i
    request.id, request.batch, request.requested, choice, answer.signature, count, answer.parameters, places = description
    request.model = model
    request.outputs = rebuild_choice(choice)
    answer.input = request
    answer.layout = layout_of(model, answer.signature, count)
    answer.outputs = <OutputRef *>PyMem_Malloc((answer.layout.count or 1) * sizeof(OutputRef))
    if answer.outputs == NULL:
        raise MemoryError()
    memcpy(answer.outputs, answer.layout.outputs, answer.layout.count * sizeof(OutputRef))
    answer.count = answer.layout.count
    for i, (position, offset, nbytes) in enumerate(places):
        out = &answer.outputs[i]
        out.nbytes = nbytes
        if position != NOWHERE:
            out.data = address_of(bases[position]) + <uint64_t>offset
    return answer


cdef unsigned char *address_of(object buffer) except? NULL:
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    cdef unsigned char *at = <unsigned char *>view.buf
    PyBuffer_Release(&view)
    return at


# ---- for the server's side of codec processes

def rebuild(ModelSignature model, tuple description, list blocks, regions) -> InferInput:
    """A request that a codec process described; see rebuild_input."""
    return rebuild_input(model, description, blocks, regions)


def describe(Answer answer) -> tuple:
    """An answer's description, and the memory files that it names; see describe_answer.  Its regions are written then."""
    files = []
    return describe_answer(answer, files), files
