# One inference request in the making: what was received of it, and what it has that its plan has not.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint64_t
from tisfast.native.memory cimport Arena, Block
from tisfast.native.region cimport Regions
from tisfast.wire.infer_plan cimport InferPlan
from tisfast.wire.json_numbers cimport Span
from tisfast.wire.signature cimport ModelSignature

cdef class InferBody:
    """A received inference body (a gRPC message, too), and what it is read with.  It lies at block.data[start : start + nbytes]."""
    cdef ModelSignature model
    cdef Arena arena                # the model's input arena: of `block`, and of what must lie elsewhere
    cdef Block block
    cdef uint64_t start, nbytes
    cdef int64_t head_bytes         # HTTP: Inference-Header-Content-Length, -1 when absent (all is JSON), 0 for a raw binary request
    cdef uint64_t max_input_bytes   # of JSON, of a tensor that is decoded: --http-max-input-size, or gRPC's bound
    cdef Regions regions            # what clients have registered; None: no region is known
    cdef bytes forwarded            # parameters that did not come with the body, a JSON object as text or b""; they win over
                                    # those of the body

cdef enum:
    DRAFT_INPUTS = 4                # have their room in the draft

cdef struct DraftInput:             # as in TensorPlan, where that depends on the request
    uint64_t offset
    uint64_t nbytes
    bint referred                   # in a region, and the worker reads it where it lies

cdef class Draft:
    """The part of a request that is its own and not its plan's, until it has become an InferInput."""
    cdef InferPlan plan             # frozen by now
    cdef str id
    cdef list values                # per position: JSON data of FROM_JSON inputs, the decoder of FROM_CONTENTS ones; None: there are none
    cdef const Span *spans          # numbers that are read from its text (wire/json_numbers), or NULL; borrowed from who makes the draft
    cdef DraftInput *inputs         # plan.count of them, by input index
    cdef uint64_t *places           # of each, offset in arena 0 and bytes: as RecordTemplate.write takes them
    cdef bytes more                 # room for both where they are many; freed with it, without a destructor
    cdef DraftInput few_inputs[DRAFT_INPUTS]
    cdef uint64_t few_places[2 * DRAFT_INPUTS]
    # Start of Triton's texts about a request.
    cdef str who(self)

cdef Draft new_draft(InferPlan plan, str id, list values)
