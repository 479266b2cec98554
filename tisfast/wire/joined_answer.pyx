"""Answers over several blocks; see joined_answer.pxd.  Layer 2 (wire).

Such an answer is read like a worker's: what it has beside its places follows from its signature, and is remembered.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.native.memory cimport Block
from tisfast.wire.late_copies cimport late_copy
from tisfast.wire.record cimport (
    Answer, InferInput, InputRef, OutputRef, layout_of, signature_bytes_of, wants_device, write_signature)
from tisfast.wire.signature cimport BYTES, ModelSignature, TensorSpec
from tisfast.wire.tensors cimport Tensor, new_tensor

from tisfast import limits
from tisfast.errors import Internal

cdef enum:
    OUTPUTS_MAX = 64
    RANK_MAX = 32

assert OUTPUTS_MAX == limits.OUTPUTS_MAX and RANK_MAX == limits.TENSOR_RANK_MAX


cdef Answer join_answer(InferInput request, list tensors, bytes parameters):
    cdef Answer answer = Answer.__new__(Answer)
    cdef int count = <int>len(tensors)
    answer.input = request
    answer.signature = signature_of(request.model, tensors)
    answer.layout = layout_of(request.model, answer.signature, <uint32_t>count)
    answer.parameters = parameters
    answer.tensors = list(tensors)
    answer.outputs = <OutputRef *>PyMem_Malloc((count or 1) * sizeof(OutputRef))
    if answer.outputs == NULL:
        raise MemoryError()
    memcpy(answer.outputs, answer.layout.outputs, count * sizeof(OutputRef))
    answer.count = count
    place(answer)
    return answer


cdef bytes signature_of(ModelSignature model, list tensors):
    cdef InputRef refs[OUTPUTS_MAX]
    cdef int64_t shapes[OUTPUTS_MAX * RANK_MAX]
    cdef int count = <int>len(tensors)
    cdef TensorSpec spec
    cdef Tensor tensor
    cdef bytes signature
    cdef int64_t *at = shapes
    cdef int i
    if count > OUTPUTS_MAX:
        raise Internal(f"model '{model.name}' has {count} outputs in one answer; {OUTPUTS_MAX} is the limit")
    for i in range(count):
        tensor = <Tensor>tensors[i]
        spec = <TensorSpec>model.output_by_name[tensor.name]
        if len(tensor.shape) > RANK_MAX:
            raise Internal(f"output '{tensor.name}' of model '{model.name}' has {len(tensor.shape)} dimensions; "
                           f"{RANK_MAX} is the limit")
        refs[i].index, refs[i].dtype, refs[i].rank = <uint16_t>spec.index, <uint8_t>tensor.dtype, <uint8_t>len(tensor.shape)
        refs[i].shape = at
        for dim in tensor.shape:
            at[0] = dim
            at += 1
    signature = PyBytes_FromStringAndSize(NULL, signature_bytes_of(refs, count))
    write_signature(<unsigned char *>PyBytes_AS_STRING(signature), refs, count)
    return signature


cdef int place(Answer answer) except -1:
    cdef OutputRef *out
    cdef Tensor tensor
    cdef int i
    for i in range(answer.count):
        out = &answer.outputs[i]
        tensor = <Tensor>answer.tensors[i]
        if tensor.nbytes != out.nbytes and (out.dtype != BYTES or tensor.nbytes < out.nbytes):
            raise Internal(f"output '{tensor.name}' of model '{answer.input.model.name}' has {tensor.nbytes} bytes, its "
                           f"shape asks for {out.nbytes}")
        out.nbytes = tensor.nbytes
        out.data = tensor.address()
        if out.data == NULL and tensor.file.device >= 0 and (
                answer.input.shared_outputs >> out.index & 1 or wants_device(answer.input, tensor.file.device)):
            continue  # from there to a region, or to a model
        if out.data == NULL:
            answer.tensors[i] = tensor = copied(answer, tensor)
            out.data = tensor.address()
    return 0


# Of a tensor whose owner may take it away while it is being sent.
cdef Tensor copied(Answer answer, Tensor tensor):
    cdef Block block = answer.input.arena().take(max(tensor.nbytes, <uint64_t>1))
    if tensor.file.device < 0:
        tensor.read(0, block.data, tensor.nbytes)
    elif tensor.nbytes:
        if answer.uncopied is None:
            answer.uncopied = []
        answer.uncopied.append(late_copy(tensor, 0, tensor.nbytes, block, 0))
    return new_tensor(tensor.name, tensor.dtype, tensor.shape, block.arena, block.offset, tensor.nbytes, block)


def join(InferInput request, list tensors, bytes parameters=b"") -> Answer:
    """join_answer(), for tests and tools."""
    return join_answer(request, tensors, parameters)
