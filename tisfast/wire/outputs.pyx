"""Outputs as classes and outputs in regions; see outputs.pxd.  Layer 2 (wire)."""

from libc.stdint cimport uint32_t, uint64_t
from tisfast.wire.classify cimport best_classes
from tisfast.wire.infer_plan cimport InferPlan, OutputChoice, OutputForm
from tisfast.wire.record cimport Answer, InferInput, OutputRef, RequestHead, source_of
from tisfast.wire.signature cimport TensorSpec
from tisfast.wire.tensors cimport NO_INPUT, OUTPUT_PLACES, SHARE_SHIFT, ForeignInput, Tensor, new_foreign, new_tensor

from tisfast.errors import Internal


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


def region_bytes(Answer answer) -> int:
    """Bytes of the outputs that are still to be written into regions."""
    cdef uint64_t total = 0
    cdef int i
    for i in range(answer.count):
        if into_region(answer, &answer.outputs[i]) and not is_written(answer, &answer.outputs[i]):
            total += answer.outputs[i].nbytes
    return total


def write_regions(Answer answer) -> None:
    """Write them, before the answer is described: in any thread, while others use the answer.  Raises TisError."""
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
    cdef TensorSpec spec = <TensorSpec>answer.input.model.outputs[out.index]
    if way.region is not None:
        return to_region(answer, way, spec, out)
    return to_classes(answer, way, spec, out)


cdef SpecialOutput to_region(Answer answer, OutputForm way, TensorSpec spec, OutputRef *out):
    cdef SpecialOutput special = SpecialOutput.__new__(SpecialOutput)
    if out.nbytes > way.nbytes:
        raise Internal(
            f"shared memory size specified with the request for output '{spec.name}' ({way.nbytes} bytes) should be at "
            f"least {out.nbytes} bytes to hold the results")
    if way.target is None:
        pass  # in a codec process: the server wrote it before (wire/plain_values)
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
