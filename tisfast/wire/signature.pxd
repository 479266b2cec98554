# What the codecs must know of a model version: names, types and shapes of its tensors.  Layer 2 (wire).
cdef class TensorSpec:
    cdef readonly str name
    cdef readonly int index         # position in the worker's list
    cdef readonly int dtype         # code of types.DataType
    cdef readonly str datatype      # KServe name
    cdef readonly tuple dims        # as configured (reshape is the worker's affair), -1 = variable, no batch dimension
    cdef readonly bint optional
    cdef readonly bint ragged

cdef class ModelSignature:
    """Immutable after construction.  version: the number as text."""
    cdef readonly str name
    cdef readonly str version
    cdef readonly int max_batch_size
    cdef readonly bint decoupled
    cdef readonly list inputs       # of TensorSpec; clients' inputs only
    cdef readonly list outputs
    cdef readonly dict input_by_name
    cdef readonly dict output_by_name
    cdef readonly bint shapes_vary  # some non-ragged input has a -1: batches must compare shapes
    cdef dict heads                 # remembered parses of inference heads (wire/infer); bounded
