# What the codecs must know of a model version: names, types and shapes of its tensors.  Layer 2 (wire).
from libc.stdint cimport uint32_t, uint64_t

# Codes of types.DataType that the codecs treat specially.
cdef enum:
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14

# Bytes of one element; 0 for BYTES (variable) and for codes that do not exist.
cdef inline uint32_t item_bytes(int dtype) noexcept nogil:
    if dtype == BOOL or dtype == UINT8 or dtype == INT8:
        return 1
    if dtype == UINT16 or dtype == INT16 or dtype == FP16 or dtype == BF16:
        return 2
    if dtype == UINT32 or dtype == INT32 or dtype == FP32:
        return 4
    if dtype == UINT64 or dtype == INT64 or dtype == FP64:
        return 8
    return 0

cdef class TensorSpec:
    cdef readonly str name
    cdef readonly int index         # position in the worker's list
    cdef readonly int dtype         # code of types.DataType
    cdef readonly str datatype      # KServe name
    cdef readonly tuple dims        # as configured (reshape is the worker's affair), -1 = variable, no batch dimension
    cdef readonly bint optional
    cdef readonly bint ragged
    cdef readonly tuple labels      # of classes, as bytes; () for none

cdef class ModelSignature:
    """Immutable after construction.  version: the number as text."""
    cdef readonly str name
    cdef readonly str version
    cdef public str namespace       # with --model-namespacing, "" else; set once, before anybody sees the signature
    cdef readonly int max_batch_size
    cdef readonly bint decoupled
    cdef readonly list inputs       # of TensorSpec; clients' inputs only
    cdef readonly list outputs
    cdef readonly dict input_by_name
    cdef readonly dict output_by_name
    cdef readonly bint batches_vary # some non-ragged input has a -1, or some input is optional: not every two requests may
                                    # share a batch (InferInput.shape_key)
    cdef readonly int required_inputs
    cdef readonly bint has_strings       # some input is of BYTES: its elements are counted where they lie
    cdef readonly uint64_t all_outputs   # bit i for each output
    cdef public bint copies_regions      # inputs in clients' host memory are copied first: decoupled models, guests, those with a cache
    cdef public bint copies_devices      # tensors on a GPU go by way of host memory: guests, those with a cache
    cdef public int device_inputs        # the GPU whose memory its workers take inputs in, or types.NO_DEVICE
    cdef public int device_inputs_meant  # the same by its configuration, also while its workers get copies on the host
    cdef public int device_outputs       # the GPU that its workers write outputs to themselves, or types.NO_DEVICE
    cdef readonly uint64_t expanded_bytes_max    # of a compressed body; 2^63 where an input's size is open
    cdef readonly uint32_t record_room   # bytes that a request record of this model usually needs
    cdef bytes head_json            # "model_name":"…","model_version":"…" of every answer
    cdef dict heads                 # remembered parses of inference heads (wire/infer_plan); bounded
    cdef dict messages              # the same of gRPC messages
    cdef bytes head_message         # model_name and model_version of every ModelInferResponse
    cdef bint region_heads          # a whole body has named regions only: such bodies are worth remembering, too
    cdef dict layouts               # remembered answer signatures (wire/record); bounded
    cdef object __weakref__         # who has told another process of it tells that it is gone
    cdef int _derive(self) except -1
