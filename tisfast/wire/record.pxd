# The request and answer records of workers/WIRE.md.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from tisfast.native.memory cimport Arena, Block, MemoryFile
from tisfast.wire.signature cimport ModelSignature
from tisfast.wire.late_copies cimport LateCopy
from tisfast.wire.tensors cimport ForeignInput, Tensor

cdef class InferInput:
    """One inference request, protocol-free: what HTTP and gRPC parse into and the engine schedules.

    Owns the blocks that hold its record and tensors; they live as long as this object does.
    """
    cdef readonly ModelSignature model
    cdef readonly str id            # "" when the client sent none
    cdef readonly uint32_t batch    # >= 1
    cdef readonly uint64_t priority # 0: default level
    cdef readonly uint64_t timeout_us
    cdef readonly object correlation  # int or str, 0 for none
    cdef readonly uint16_t sequence_flags
    cdef readonly uint64_t requested  # bit i: output i asked for
    cdef readonly bytes shape_key   # requests whose keys differ never share a batch; b"" when all shapes are fixed
    cdef Block body                 # received bytes that tensors lie in, or None
    cdef Block extra                # decoded or copied tensors and usually the record, or None
    cdef Block record_block         # None when the record lies in `body` or `extra`
    cdef uint64_t record_offset     # in the arena
    cdef uint32_t record_bytes
    cdef list uncopied              # of LateCopy: tensors that threads bring before anybody looks at the request; None: none
    cdef list foreign               # of ForeignInput: inputs, and places for outputs, in other memory than the model's input
                                    # arena; None: all are there
    cdef uint64_t shared_outputs    # bit i: output i is written into a client's region, wherever it comes from
    cdef bint for_model             # another model asks
    cdef int device_wanted          # then: the GPU where what is passed through may stay, as all that take it are there; or -1
    cdef bint stays                 # outputs may stay in GPU memory that the worker was lent (STAYS)
    cdef readonly object outputs    # front's own: how to write each output (wire/infer_plan), opaque to the engine
    # True when [offset, offset + nbytes) of arena 0 lies within one of this request's blocks.
    cdef bint owns(self, uint64_t offset, uint64_t nbytes) noexcept
    # What a worker may keep of it behind its answer: its inputs, and not the places of its outputs.
    cdef InferInput kept(self)
    # Note in the record that the client has left; the worker may look at any time.
    cdef void mark_cancelled(self) noexcept
    # Note in the record that there is a trace to be asked about, before submission.
    cpdef void mark_traced(self) noexcept
    # Another sequence id (a number, or the text it has) and other flags, here and in the record.  Before submission, or
    # between two executions.
    cdef void set_sequence(self, object correlation, uint16_t flags)
    cdef int copy_later(self, LateCopy copy) except -1
    # Its parameters as the model sees them: JSON object text, b"" for none.
    cdef bytes parameters(self)
    # Arena 0: where its record and blocks are.
    cdef Arena arena(self)
    # Address of a byte of arena 0 that `owns` said yes to.
    cdef unsigned char *address(self, uint64_t offset) noexcept
    # What lies elsewhere: marks the record, in which it has no place yet.  template: what it was written with.
    cdef int set_foreign(self, RecordTemplate template, list foreign) except -1
    # Before a worker gets the request: the share id by which it knows this memory.
    cdef void aim(self, ForeignInput foreign, uint16_t share) noexcept
    # The foreign input that [place, place + nbytes) lies in, as the worker names it; None: not one of this request.
    cdef ForeignInput foreign_at(self, uint64_t place, uint64_t nbytes)

# The fixed part of a request record.
cdef struct RequestHead:
    uint32_t signature_bytes
    uint16_t count, flags
    uint64_t requested, timeout_us, correlation
    uint32_t id_bytes, parameters_bytes, correlation_bytes, batch

cdef enum:
    LATE_FLAGS = 8 | 16 | 32 | 64 | 128     # of RequestHead.flags: those that do not say what is asked for (cancelled, FOREIGN,
                                            # traced, OUTPUT_PLACES, STAYS)

cdef struct InputRef:
    uint16_t index
    uint8_t dtype
    uint8_t rank
    const int64_t *shape

cdef class RecordTemplate:
    """All of a request record that depends neither on where the tensors lie nor on the request's id."""
    cdef bytes head                 # fixed part, signature, padding
    cdef bytes tail                 # parameters, correlation text
    cdef readonly int count         # inputs
    cdef int output_places          # there is room for so many at the end; they are written by wire/outputs
    cdef uint32_t nbytes(self, Py_ssize_t id_bytes) noexcept
    # `places`: offset in arena 0 and bytes of each input.  `at` has nbytes() of room.
    cdef void write(self, unsigned char *at, const uint64_t *places, const char *id, uint32_t id_bytes) noexcept

cdef RecordTemplate record_template(
    const InputRef *inputs, int count, uint64_t requested, uint32_t batch, uint64_t timeout_us, uint16_t flags,
    object correlation, bytes parameters)

cdef struct OutputRef:
    uint16_t index
    uint8_t dtype
    uint8_t rank
    const int64_t* shape            # rank entries, in the layout
    const unsigned char* data       # NULL: in a client's memory (`source_of`), for another model or a client's region
    uint64_t nbytes
    uint64_t place                  # of a foreign input that is passed through, or of lent memory, as the worker named it; else 0

cdef class AnswerLayout:
    """One checked answer signature, and the JSON that follows from it alone."""
    cdef readonly bytes signature
    cdef readonly int count
    cdef OutputRef *outputs         # data is NULL; nbytes is what the shape asks for, of BYTES the least possible
    cdef list heads_json            # per output: {"name":…,"datatype":…,"shape":[…]
    cdef list heads_message         # per output: its InferOutputTensor; None until gRPC needs it

# The remembered layout of these signature bytes, checked when they are new.  Raises Internal.
cdef AnswerLayout layout_of(ModelSignature model, bytes signature, uint32_t count)

cdef class Answer:
    """A worker's good answer, every offset and length checked.  Keeps the output block and, when an output is an input
    passed through, the request's blocks alive."""
    cdef readonly InferInput input
    cdef Block block
    cdef MemoryFile lent            # GPU memory that the worker was lent, where outputs may lie as long as `block` does; or None
    cdef AnswerLayout layout
    cdef readonly int count         # outputs
    cdef OutputRef* outputs         # `count` entries, owned
    cdef readonly bytes signature   # raw signature bytes: equal means same names, types and shapes
    cdef readonly bytes parameters  # JSON object text, b"" when none
    cdef list tensors               # of Tensor, in the order of outputs: of an answer that no worker gave (wire/joined_answer); else None
    cdef list copies                # blocks with outputs that a client could have taken away, or None
    cdef list uncopied              # of LateCopy: those that threads are to fill before anybody looks at the answer; or None
    cdef bint in_place              # what goes into clients' regions is there
    cdef list kept                  # what a codec made of outputs and sends instead of them, or None

# Where an output lies whose data is NULL: the tensor that it is part of, and at which byte it begins there.
cdef Tensor source_of(Answer answer, const OutputRef *out, uint64_t *start)

# ---- for wire/joined_answer

cdef AnswerLayout layout_of(ModelSignature model, bytes signature, uint32_t count)
# Bytes of a signature, and the signature itself at `at`.
cdef uint32_t signature_bytes_of(const InputRef *inputs, int count) noexcept
cdef void write_signature(unsigned char *at, const InputRef *inputs, int count) noexcept

# Checks and wraps.  `block` is the output block holding the record; lent: Answer's.  Raises Internal naming what is wrong:
# the worker lied.
cdef Answer read_answer(InferInput request, Block block, uint32_t record_bytes, MemoryFile lent)
# Where an output in lent memory lies, or None.
cdef Tensor lent_tensor(Answer answer, const OutputRef *out, str name, tuple shape)

# Whether who asks takes memory of this GPU as it is.
cdef bint wants_device(InferInput request, int device) noexcept
