"""Outputs as classes and outputs in regions; see outputs.pxd.  Layer 2 (wire)."""

from libc.stdint cimport uint64_t
from tisfast.wire.classify cimport best_classes
from tisfast.wire.infer_plan cimport OutputChoice, OutputForm
from tisfast.wire.record cimport Answer, OutputRef, source_of
from tisfast.wire.signature cimport TensorSpec
from tisfast.wire.tensors cimport Tensor

from tisfast.errors import Internal


cdef class SpecialOutput:
    """See outputs.pxd."""


def region_bytes(Answer answer) -> int:
    """Bytes of the outputs that go into regions."""
    cdef uint64_t total = 0
    cdef int i
    for i in range(answer.count):
        if into_region(answer, &answer.outputs[i]):
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
    elif out.data == NULL:  # an input in a client's memory, returned as it is
        move(answer, way, out)
    else:
        way.target.write(way.offset, out.data, out.nbytes)
    special.region = way.region
    special.offset = way.offset
    special.nbytes = out.nbytes
    return special


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
