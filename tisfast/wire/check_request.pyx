"""Does a request fit its model?  Triton's checks, in its order and words.  Layer 2 (wire)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.wire.infer_plan cimport FROM_JSON, FROM_NOWHERE, InferPlan, TensorPlan
from tisfast.wire.signature cimport BYTES, ModelSignature, TensorSpec, item_bytes

from tisfast.errors import BadRequest
from tisfast.types import BY_CODE
from tisfast.wire.refusals import UNSIZED

cdef str BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
cdef uint64_t INT64_TOP = 0x7FFFFFFFFFFFFFFF


cdef int check_fit(InferPlan plan) except -1:
    cdef ModelSignature model = plan.model
    cdef int i
    check_present(plan)
    if model.max_batch_size > 0:
        check_batch(plan)
    for i in range(plan.count):
        check_tensor(plan, &plan.tensors[i])
    sort_tensors(plan)
    if model.batches_vary and model.max_batch_size > 0:
        plan.shape_key = shape_key(plan)
    return 0


cdef str name_of(InferPlan plan, TensorPlan *tensor):
    if tensor.index == 0xFFFF:
        return plan.names[tensor.position]
    return (<TensorSpec>plan.model.inputs[tensor.index]).name


cdef str dims_text(dims):
    return "[" + ",".join([str(dim) for dim in dims]) + "]"


cdef str shape_text(TensorPlan *tensor):
    cdef int i
    return dims_text([tensor.shape[i] for i in range(tensor.rank)])


cdef int check_present(InferPlan plan) except -1:
    cdef ModelSignature model = plan.model
    cdef set got
    cdef int i, known = 0, required = 0
    for i in range(plan.count):
        if plan.tensors[i].index != 0xFFFF:
            known += 1
            required += not (<TensorSpec>model.inputs[plan.tensors[i].index]).optional
    if known == plan.count and required == model.required_inputs:
        return 0
    got = {name_of(plan, &plan.tensors[i]) for i in range(plan.count)}
    if model.required_inputs <= plan.count <= len(model.inputs):
        for name in sorted(got):
            if name not in model.input_by_name:
                raise BadRequest(
                    f"unexpected inference input '{name}' for model '{model.name}' "
                    f"(its inputs are {', '.join(model.input_by_name)})")
    raise missing(plan, got)


cdef missing(InferPlan plan, set got):
    cdef ModelSignature model = plan.model
    cdef int inputs = len(model.inputs)
    count = str(inputs)
    if inputs != model.required_inputs:
        count = f"number of inputs between {model.required_inputs} and {inputs}"
    else:
        count = f"{inputs} inputs"
    lacking = [f"'{spec.name}'" for spec in model.inputs if not spec.optional and spec.name not in got]
    given = [f"'{name}'" for name in sorted(got)]
    return BadRequest(
        f"{plan.who()}expected {count} but got {plan.count} inputs for model '{model.name}'. Got input(s) "
        f"[{','.join(given)}], but missing required input(s) [{','.join(lacking)}]. "
        "Please provide all required input(s).")


cdef int check_batch(InferPlan plan) except -1:
    cdef ModelSignature model = plan.model
    cdef TensorPlan *tensor
    cdef int64_t batch = 1
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if tensor.rank == 0:
            raise BadRequest(
                f"{plan.who()}input '{name_of(plan, tensor)}' has no shape but model requires batch dimension for "
                f"'{model.name}'")
        if i == 0:
            batch = tensor.shape[0]
        elif tensor.shape[0] != batch:
            raise BadRequest(
                f"{plan.who()}input '{name_of(plan, tensor)}' batch size does not match other inputs for "
                f"'{model.name}' (got {tensor.shape[0]}, others have {batch})")
    if batch > model.max_batch_size:
        raise BadRequest(
            f"{plan.who()}inference request batch-size must be <= {model.max_batch_size} for '{model.name}'")
    plan.batch = <uint32_t>batch
    return 0


cdef int check_tensor(InferPlan plan, TensorPlan *tensor) except -1:
    cdef ModelSignature model = plan.model
    cdef TensorSpec spec = <TensorSpec>model.inputs[tensor.index]
    cdef uint64_t size = item_bytes(tensor.dtype)
    if tensor.dtype != spec.dtype:
        given = BY_CODE[tensor.dtype].wire if tensor.dtype in BY_CODE else "<invalid>"
        raise BadRequest(
            f"{plan.who()}inference input '{spec.name}' data-type is '{given}', but model '{model.name}' expects "
            f"'{spec.datatype}'")
    if not shape_fits(spec, tensor, model.max_batch_size > 0):
        expected = [-1] * (model.max_batch_size > 0) + list(spec.dims)
        raise BadRequest(
            f"{plan.who()}unexpected shape for input '{spec.name}' for model '{model.name}'. Expected "
            f"{dims_text(expected)}, got {shape_text(tensor)}. {BATCH_NOTE if model.max_batch_size > 0 else ''}")
    if model.max_batch_size > 0 and plan.batch == 0:
        raise BadRequest(
            f"{plan.who()}input byte size mismatch for input '{spec.name}' for model '{model.name}'. Expected "
            f"{least_bytes(spec)}, got 0 (the batch dimension must be at least 1, its shape is {shape_text(tensor)})")
    if tensor.dtype == BYTES:
        return 0  # its elements are counted when its bytes are there
    if size > 1 and tensor.elements > INT64_TOP // size:
        raise BadRequest(
            f"byte size for tensor '{spec.name}' exceeds maximum size of {INT64_TOP} (byte size overflow for input "
            f"'{spec.name}' of shape {shape_text(tensor)})")
    if tensor.source != FROM_JSON and tensor.nbytes != tensor.elements * size:
        raise BadRequest(
            f"{plan.who()}input byte size mismatch for input '{raw_or(plan, spec)}' for model '{model.name}'. Expected "
            f"{tensor.elements * size}, got {tensor.nbytes}{UNSIZED if tensor.unsized else ''}")
    return 0


# Triton calls the only input of a raw request so, because its name was deduced.
cdef str raw_or(InferPlan plan, TensorSpec spec):
    return "raw_input" if plan.raw else spec.name


cdef bint shape_fits(TensorSpec spec, TensorPlan *tensor, int batched):
    cdef Py_ssize_t rank = len(spec.dims)
    cdef int64_t dim
    cdef Py_ssize_t i
    if tensor.rank != rank + batched:
        return False
    for i in range(rank):
        dim = spec.dims[i]
        if dim != -1 and dim != tensor.shape[i + batched]:
            return False
    return True


cdef object least_bytes(TensorSpec spec):
    total = item_bytes(spec.dtype) or 4
    for dim in spec.dims:
        total *= dim if dim != -1 else 1
    return total


# Few tensors, nearly always in order already.
cdef int sort_tensors(InferPlan plan) except -1:
    cdef TensorPlan moving
    cdef int i, k
    for i in range(1, plan.count):
        moving = plan.tensors[i]
        k = i
        while k > 0 and plan.tensors[k - 1].index > moving.index:
            plan.tensors[k] = plan.tensors[k - 1]
            k -= 1
        plan.tensors[k] = moving
    return 0


# What must agree within a batch: which inputs there are, and the shapes of those that are not ragged, without the batch
# dimension.
cdef bytes shape_key(InferPlan plan):
    cdef TensorPlan *tensor
    cdef list parts = []
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        parts.append(bytes([tensor.index & 255, tensor.index >> 8]))
        if not (<TensorSpec>plan.model.inputs[tensor.index]).ragged:
            parts.append(PyBytes_FromStringAndSize(<char *>(tensor.shape + 1), 8 * (tensor.rank - 1)))
    return b"".join(parts)
