# What an inference head asks for, checked against the model: everything of a request but the bytes of its tensors.
# Layer 2 (wire).
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from tisfast.native.region cimport Region, Regions
from tisfast.wire.record cimport RecordTemplate
from tisfast.wire.signature cimport ModelSignature

cdef enum Source:
    FROM_BINARY     # bytes behind the head
    FROM_JSON       # in the head; the draft's `values` at its position hold them
    FROM_NOWHERE    # no elements
    FROM_REGION     # in a region that the client registered; `names` at its position holds the region's
    FROM_CONTENTS   # typed elements of a gRPC message; the draft's `values` at its position hold their decoder

cdef struct TensorPlan:
    uint64_t nbytes         # FROM_JSON BYTES: 0, each request's strings are measured
    uint64_t elements
    uint64_t offset         # FROM_BINARY: behind the head; FROM_REGION: in the region
    const int64_t *shape    # rank entries, in the plan
    uint32_t position       # in the request's list of inputs
    uint16_t index
    uint8_t dtype
    uint8_t rank
    uint8_t source
    uint8_t unsized         # FROM_REGION: the request does not say how many bytes, so nbytes is 0

cdef class OutputForm:
    """How one output is given that is not simply its tensor: its best classes, or written into a region."""
    cdef readonly uint64_t classes      # > 0: so many best classes
    cdef readonly str region            # None: into none
    cdef readonly uint64_t offset, nbytes   # part of the region that may be written
    cdef readonly bint unsized          # the request does not say how many bytes, so nbytes is 0
    cdef readonly Region target         # the region itself, once a request has it (OutputChoice.bind)

cdef class OutputChoice:
    """How each output is to be written."""
    cdef readonly bint binary_default   # applies when no outputs were listed
    cdef readonly bint listed
    cdef readonly bint in_regions       # some output goes into a region
    cdef public bint empty_final        # gRPC: triton_enable_empty_final_response
    cdef readonly uint64_t binary       # bit i: output i in binary form, of those listed
    cdef readonly uint64_t special      # bit i: output i has an entry in `ways`; see wire/outputs
    cdef readonly uint64_t shared       # of a bound one: bit i: output i goes to a region
    cdef readonly dict ways             # OutputForm by output index, or None
    cdef bint is_binary(self, int index) noexcept
    # A choice for one request of the model: holds the regions themselves, bounds checked.  Raises NotFound, BadRequest.
    cdef OutputChoice bind(self, Regions regions, ModelSignature model)

cdef class InferPlan:
    """One parsed head.  A plan whose tensors are all binary holds for every request with the same head.

    It is filled in while the head is parsed, and frozen by `finish` (wire/request): what a request has for itself is in its Draft.
    """
    cdef ModelSignature model
    cdef readonly str id            # of the request whose head was parsed; others with the same plan have their own
    cdef int count
    cdef TensorPlan *tensors        # by input index
    cdef int64_t *shapes
    cdef list names                 # per position: the region's of FROM_REGION inputs, its own of one that the model has not, else None
    cdef readonly bint all_binary   # no tensor is in JSON
    cdef readonly bint regional     # some input is in a region
    cdef Regions regions            # where those that the request names are looked up; None: none is known
    cdef bint raw                   # a body that is nothing but one tensor
    cdef bint stays                 # binary tensors are used where they were received
    cdef readonly uint64_t binary_bytes   # behind the head
    cdef readonly uint32_t batch
    cdef readonly uint64_t requested
    cdef readonly uint64_t priority
    cdef readonly uint64_t timeout_us
    cdef readonly uint16_t flags
    cdef readonly object correlation
    cdef readonly bytes shape_key
    cdef readonly OutputChoice outputs
    cdef RecordTemplate template
    cdef int reserve(self, Py_ssize_t inputs, Py_ssize_t dims) except -1
    # Start of Triton's texts about a request.
    cdef str who(self)

# The region of that name.  Raises NotFound; so does no table at all.
cdef Region find(Regions regions, str name)
