"""Outputs as classes and outputs in regions; see outputs.pxd.  Layer 2 (wire)."""

from libc.stdint cimport uint32_t, uint64_t
from tisfast.native.memory cimport Block, MemoryFile
from tisfast.wire.classify cimport best_classes
from tisfast.wire.infer_plan cimport InferPlan, OutputChoice, OutputForm
from tisfast.wire.late_copies cimport lane_of
from tisfast.wire.record cimport Answer, InferInput, OutputRef, RequestHead, source_of
from tisfast.wire.signature cimport TensorSpec
from tisfast.wire.tensors cimport NO_INPUT, OUTPUT_PLACES, SHARE_SHIFT, ForeignInput, Tensor, new_foreign, new_tensor

from functools import partial

from tisfast import tuning
from tisfast.errors import Internal, TisError
from tisfast.wire.refusals import UNSIZED

cdef uint64_t LOOP_COPY_BYTES_MAX = tuning.LOOP_COPY_BYTES_MAX


cdef class SpecialOutput:
    """See outputs.pxd."""


cdef int output_places(InferPlan plan, dict ways) except -1:
    cdef OutputForm way
    cdef int count = 0
    if ways is None or plan.model.device_outputs < 0 or plan.model.copies_devices:
        return 0
    for way in ways.values():
        count += way.region is not None
    return count


# Behind the record's texts: their number, then output, place and bytes of each.
cdef int place_outputs(InferInput request, InferPlan plan, dict ways) except -1:
    cdef uint32_t at = request.record_bytes - 8 - 24 * <uint32_t>plan.template.output_places
    cdef unsigned char *record = request.address(request.record_offset)
    cdef uint64_t *into = <uint64_t *>(record + at)
    cdef uint64_t count = 0, offset
    cdef ForeignInput foreign
    cdef OutputForm way
    cdef list places = []
    for index, way in ways.items():
        if way.target is None or way.target.file.device != plan.model.device_outputs:
            continue
        offset = way.target.offset + way.offset
        if (offset + way.nbytes) >> SHARE_SHIFT:
            continue
        foreign = new_foreign(new_tensor("", 0, (), way.target.file, offset, way.nbytes, way.target), NO_INPUT)
        foreign.place_at = at + 8 + 24 * <uint32_t>count + 8
        into[1 + 3 * count], into[2 + 3 * count], into[3 + 3 * count] = <uint64_t>index, 0, way.nbytes
        count += 1
        places.append(foreign)
        request.shared_outputs |= <uint64_t>1 << <int>index  # of an ensemble's step: it stays there, whatever the others do
    into[0] = count
    if places:
        request.foreign = places if request.foreign is None else request.foreign + places
        (<RequestHead *>record).flags |= OUTPUT_PLACES
    return 0


cdef bint region_waits(Answer answer) except -1:
    cdef OutputForm way
    cdef OutputRef *out
    cdef uint64_t total = 0
    cdef int i
    if not answer.input.shared_outputs or answer.in_place or type(answer.input.outputs) is not OutputChoice or (
            not (<OutputChoice>answer.input.outputs).in_regions):
        return False
    for i in range(answer.count):
        out = &answer.outputs[i]
        way = unwritten_form(answer, out)
        if way is None:
            continue
        total += out.nbytes
        if total > LOOP_COPY_BYTES_MAX or way.target.device >= 0 or source_file(answer, out).device >= 0:
            return True
    return False


cdef list region_steps(Answer answer):
    cdef OutputForm way
    cdef list steps = []
    cdef int i
    for i in range(answer.count):
        way = unwritten_form(answer, &answer.outputs[i])
        if way is not None:
            steps += output_steps(answer, i, way)
    return steps


# Where an output is still to be written into a region; None: not into one, or it is there.
cdef OutputForm unwritten_form(Answer answer, OutputRef *out):
    cdef OutputForm way
    if not into_region(answer, out) or is_written(answer, out):
        return None
    way = <OutputForm>(<OutputChoice>answer.input.outputs).ways[out.index]
    return way if way.target is not None else None


# Where both ends are memory of GPUs, of two, each GPU's own thread copies: neither waits for the other GPU.
cdef list output_steps(Answer answer, int i, OutputForm way):
    cdef OutputRef *out = &answer.outputs[i]
    cdef Block crossing = None
    cdef str what = ""
    source = lane_of(source_file(answer, out), out.nbytes)
    target = lane_of(way.target.file, out.nbytes)
    if source is not None or target is not None:
        name = (<TensorSpec>answer.input.model.outputs[out.index]).name
        what = f"output '{name}' of model '{answer.input.model.name}', into region '{way.region}'"
    if source is None or target is None or source is target:
        return [(source if target is None else target, partial(written, [answer, None], i, what), what)]
    crossing = answer.input.arena().take(out.nbytes)
    if answer.copies is None:
        answer.copies = []
    answer.copies.append(crossing)  # the answer has the last reference: memory is given back by the loop alone
    return [
        (source, partial(taken, [answer, crossing], i, what), what),
        (target, partial(written, [answer, crossing], i, what), what)]


# The memory that an output lies in, where its bytes are not to be touched here; else its arena.
cdef MemoryFile source_file(Answer answer, OutputRef *out):
    cdef uint64_t start
    if out.data != NULL or out.nbytes == 0:
        return answer.input.arena()
    return source_of(answer, out, &start).file


# In threads, which let go of what they were given before they tell; see late_copies.
def taken(list holder, int i, str what):
    cdef Block crossing = holder.pop()
    cdef Answer answer = holder.pop()
    cdef OutputRef *out = &answer.outputs[i]
    cdef uint64_t start
    try:
        source_of(answer, out, &start).read(start, crossing.data, out.nbytes)
    except TisError as error:
        return error.status, f"{what}: {error.message}" if what else error.message
    return ()


def written(list holder, int i, str what):
    cdef Block crossing = holder.pop()
    cdef Answer answer = holder.pop()
    cdef OutputForm way = <OutputForm>(<OutputChoice>answer.input.outputs).ways[answer.outputs[i].index]
    try:
        check_room(answer, way, &answer.outputs[i])
    except TisError as error:
        return error.status, error.message
    try:
        if crossing is not None:
            way.target.write(way.offset, crossing.data, answer.outputs[i].nbytes)
        else:
            prepare(answer, &answer.outputs[i])
    except TisError as error:
        return error.status, f"{what}: {error.message}" if what else error.message
    return ()


def waits_for_threads(Answer answer) -> bool:
    """Whether threads write its regions; for tests."""
    return region_waits(answer)


def write_regions(Answer answer) -> None:
    """Write them here and now; for tests and tools.  Raises TisError."""
    cdef int i
    for i in range(answer.count):
        if into_region(answer, &answer.outputs[i]):
            prepare(answer, &answer.outputs[i])


cdef bint into_region(Answer answer, OutputRef *out) except -1:
    cdef OutputChoice choice = <OutputChoice>answer.input.outputs
    return answer.input.requested >> out.index & 1 and choice.special >> out.index & 1 and (
        (<OutputForm>choice.ways[out.index]).region is not None)


cdef SpecialOutput prepare(Answer answer, OutputRef *out):
    cdef OutputForm way = <OutputForm>(<OutputChoice>answer.input.outputs).ways[out.index]
    if way.region is not None:
        return to_region(answer, way, out)
    return to_classes(answer, way, <TensorSpec>answer.input.model.outputs[out.index], out)


cdef int check_room(Answer answer, OutputForm way, OutputRef *out) except -1:
    if out.nbytes > way.nbytes:
        name = (<TensorSpec>answer.input.model.outputs[out.index]).name
        raise Internal(
            f"shared memory size specified with the request for output '{name}' ({way.nbytes} bytes) should be at "
            f"least {out.nbytes} bytes to hold the results, in region '{way.region}'{UNSIZED if way.unsized else ''}")
    return 0


cdef SpecialOutput to_region(Answer answer, OutputForm way, OutputRef *out):
    cdef SpecialOutput special = SpecialOutput.__new__(SpecialOutput)
    check_room(answer, way, out)
    if way.target is None or answer.in_place:
        pass  # it is there; in a codec process, where the region is not known, the server wrote it before (wire/plain_values)
    elif out.data == NULL:  # an input in a client's memory, returned as it is; or the worker has written it
        move(answer, way, out)
    else:
        way.target.write(way.offset, out.data, out.nbytes)
    special.region = way.region
    special.offset = way.offset
    special.nbytes = out.nbytes
    return special


cdef bint is_written(Answer answer, OutputRef *out) except -1:
    cdef OutputForm way
    cdef uint64_t start
    cdef Tensor tensor
    if answer.in_place:
        return into_region(answer, out)
    if out.data != NULL or not into_region(answer, out):
        return False
    way = <OutputForm>(<OutputChoice>answer.input.outputs).ways[out.index]
    if way.target is None:
        return False
    tensor = source_of(answer, out, &start)
    return tensor.file is way.target.file and tensor.offset + start == way.target.offset + way.offset


cdef int move(Answer answer, OutputForm way, OutputRef *out) except -1:
    cdef uint64_t start
    cdef Tensor tensor = source_of(answer, out, &start)
    return way.target.write_from(way.offset, tensor.file, tensor.offset + start, out.nbytes)


# Each entry of the batch is classified by itself.
cdef SpecialOutput to_classes(Answer answer, OutputForm way, TensorSpec spec, OutputRef *out):
    cdef SpecialOutput special = SpecialOutput.__new__(SpecialOutput)
    cdef bint batched = answer.input.model.max_batch_size > 0 and out.rank > 0 and out.shape[0] > 0
    cdef uint64_t rows = <uint64_t>out.shape[0] if batched else 1
    cdef uint64_t elements = 1, classes
    cdef int i
    for i in range(batched, out.rank):
        elements *= <uint64_t>out.shape[i]
    classes = min(way.classes, elements)
    special.strings = best_classes(spec, out.dtype, out.data, rows, elements, classes)
    if batched:
        special.shape = (rows, classes)
    else:
        special.shape = (classes,)
    special.elements = rows * classes
    if answer.kept is None:
        answer.kept = []
    answer.kept.append(special)
    return special
