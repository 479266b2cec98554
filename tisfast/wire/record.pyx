"""Request records out, answer records in (workers/WIRE.md).  Layer 2 (wire).

Nothing that a worker wrote is believed: the record is copied out of shared memory first, so that what was checked is
what is used, and every offset and length is held against the blocks it must lie in.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from tisfast.native.memory cimport Arena, Block, MemoryFile
from tisfast.wire.json_fields cimport shown
from tisfast.wire.late_copies cimport LateCopy, late_copy, late_steps
from tisfast.wire.signature cimport BYTES, ModelSignature, TensorSpec, item_bytes
from tisfast.wire.tensors cimport FOREIGN, LENT, NO_INPUT, SHARE_SHIFT, ForeignInput, Tensor, new_tensor

import json

import orjson

from tisfast import limits, tuning
from tisfast.errors import BY_STATUS, BadRequest, Internal
from tisfast.types import BY_CODE

cdef struct AnswerHead:
    uint32_t signature_bytes
    uint16_t count, zero
    uint32_t parameters_bytes, zeros

cdef struct SignatureEntry:
    uint16_t index
    uint8_t dtype, rank
    uint32_t zero

cdef uint16_t SEQUENCE_START = 1
cdef uint16_t SEQUENCE_END = 2
cdef uint16_t CORRELATION_IS_TEXT = 4
cdef uint16_t CANCELLED = 8
cdef uint16_t TRACED = 32
cdef uint64_t LENT_OFFSET = ((<uint64_t>1) << SHARE_SHIFT) - 1
cdef Py_ssize_t REQUEST_PARAMETERS_BYTES_MAX = limits.REQUEST_PARAMETERS_BYTES_MAX
cdef uint32_t PARAMETERS_BYTES_MAX = limits.ANSWER_PARAMETERS_BYTES_MAX
cdef uint32_t RANK_MAX = limits.TENSOR_RANK_MAX
cdef uint32_t OUTPUTS_MAX = limits.OUTPUTS_MAX
cdef Py_ssize_t LAYOUTS_MAX = limits.ANSWER_LAYOUTS_MAX
cdef uint64_t LOOP_COPY_BYTES_MAX = tuning.LOOP_COPY_BYTES_MAX


@cython.freelist(256)
cdef class InferInput:
    """One inference request; see record.pxd."""

    cdef bint owns(self, uint64_t offset, uint64_t nbytes) noexcept:
        return holds(self.extra, offset, nbytes) or holds(self.body, offset, nbytes) or holds(
            self.record_block, offset, nbytes)

    cdef InferInput kept(self):
        cdef InferInput made
        cdef ForeignInput each
        cdef list inputs = None
        if self.foreign is not None:
            inputs = [each for each in self.foreign if each.position != NO_INPUT]
        if inputs is None or len(inputs) == len(self.foreign):
            return self
        made = InferInput.__new__(InferInput)
        made.model, made.batch, made.foreign = self.model, self.batch, inputs or None
        made.body, made.extra, made.record_block = self.body, self.extra, self.record_block
        made.record_offset, made.record_bytes = self.record_offset, self.record_bytes
        return made

    def gpu_regions(self) -> list:
        """The names of clients' regions on a GPU in which inputs of it lie: a model may write there."""
        cdef ForeignInput each
        cdef set found = set()
        for each in self.foreign or ():
            if each.position != NO_INPUT and each.tensor.file.device >= 0:
                found.add(each.tensor.file.region)
        return sorted(found - {""})  # that is memory which the server lends

    cdef Arena arena(self):
        cdef Block block = self.extra if self.extra is not None else self.body if self.body is not None else self.record_block
        return block.arena

    cdef unsigned char *address(self, uint64_t offset) noexcept:
        return self.arena().base + offset

    cdef void mark_cancelled(self) noexcept:
        if self.record_bytes >= sizeof(RequestHead):
            (<RequestHead *>self.address(self.record_offset)).flags |= CANCELLED

    cpdef void mark_traced(self) noexcept:
        if self.record_bytes >= sizeof(RequestHead):
            (<RequestHead *>self.address(self.record_offset)).flags |= TRACED

    cdef void set_sequence(self, object correlation, uint16_t flags):
        cdef RequestHead *head
        self.sequence_flags = flags
        self.correlation = correlation
        if self.record_bytes < sizeof(RequestHead):
            return
        head = <RequestHead *>self.address(self.record_offset)
        head.flags = <uint16_t>(head.flags & ~(SEQUENCE_START | SEQUENCE_END) | flags)
        if type(correlation) is not str:
            head.correlation = correlation
            head.flags &= ~CORRELATION_IS_TEXT

    cdef int copy_later(self, LateCopy copy) except -1:
        if self.uncopied is None:
            self.uncopied = []
        self.uncopied.append(copy)
        return 0

    cdef bytes parameters(self):
        cdef const unsigned char *at = self.address(self.record_offset)
        cdef const RequestHead *head = <const RequestHead *>at
        if self.record_bytes < sizeof(RequestHead) or head.parameters_bytes == 0:
            return b""
        return PyBytes_FromStringAndSize(
            <const char *>at + sizeof(RequestHead) + align8(head.signature_bytes) + 16 * head.count + head.id_bytes,
            head.parameters_bytes)

    cdef int set_foreign(self, RecordTemplate template, list foreign) except -1:
        cdef ForeignInput each
        self.foreign = foreign
        for each in foreign:
            if each.position != NO_INPUT:
                each.place_at = <uint32_t>PyBytes_GET_SIZE(template.head) + 16 * each.position
        (<RequestHead *>self.address(self.record_offset)).flags |= FOREIGN
        return 0

    cdef void aim(self, ForeignInput foreign, uint16_t share) noexcept:
        foreign.place = <uint64_t>share << SHARE_SHIFT | foreign.tensor.offset
        (<uint64_t *>self.address(self.record_offset + foreign.place_at))[0] = foreign.place

    cdef ForeignInput foreign_at(self, uint64_t place, uint64_t nbytes):
        cdef ForeignInput foreign
        if self.foreign is None or place >> SHARE_SHIFT == 0:
            return None
        for foreign in self.foreign:
            if foreign.place <= place and nbytes <= foreign.tensor.nbytes and (
                    place - foreign.place <= foreign.tensor.nbytes - nbytes):
                return foreign
        return None

    def copy_now(self) -> None:
        """Carry out the copies that are left to threads; for tests and tools.  Raises TisError."""
        copies, self.uncopied = self.uncopied or [], None
        for _, carry_out, _ in late_steps(copies, self.model.name):
            failure = carry_out()
            if failure:
                raise BY_STATUS[failure[0]](failure[1])

    @property
    def is_late(self) -> bool:
        """Whether threads still copy inputs of it."""
        return self.uncopied is not None

    @property
    def record(self) -> bytes:
        """A copy of the record, for tests and traces."""
        return PyBytes_FromStringAndSize(<char *>self.address(self.record_offset), self.record_bytes)

    def read(self, uint64_t offset, uint64_t nbytes) -> bytes:
        """A copy of bytes of arena 0 that belong to this request.  Raises Internal for others."""
        if not self.owns(offset, nbytes):
            raise Internal(f"bytes {offset} to {offset + nbytes} lie outside the blocks of this request")
        return PyBytes_FromStringAndSize(<char *>self.address(offset), <Py_ssize_t>nbytes)


cdef inline bint holds(Block block, uint64_t offset, uint64_t nbytes) noexcept:
    return block is not None and (
        block.offset <= offset and nbytes <= block.nbytes and offset - block.offset <= block.nbytes - nbytes)


cdef inline uint32_t align8(uint32_t n) noexcept:
    return (n + 7) & ~<uint32_t>7


@cython.freelist(64)
cdef class RecordTemplate:
    """See record.pxd."""

    cdef uint32_t nbytes(self, Py_ssize_t id_bytes) noexcept:
        cdef uint32_t total = <uint32_t>(
            PyBytes_GET_SIZE(self.head) + 16 * self.count + id_bytes + PyBytes_GET_SIZE(self.tail))
        return total if self.output_places == 0 else align8(total) + 8 + 24 * <uint32_t>self.output_places

    cdef void write(self, unsigned char *at, const uint64_t *places, const char *id, uint32_t id_bytes) noexcept:
        memcpy(at, PyBytes_AS_STRING(self.head), PyBytes_GET_SIZE(self.head))
        (<RequestHead *>at).id_bytes = id_bytes
        at += PyBytes_GET_SIZE(self.head)
        memcpy(at, places, 16 * self.count)
        at += 16 * self.count
        memcpy(at, id, id_bytes)
        memcpy(at + id_bytes, PyBytes_AS_STRING(self.tail), PyBytes_GET_SIZE(self.tail))


cdef RecordTemplate record_template(
    const InputRef *inputs, int count, uint64_t requested, uint32_t batch, uint64_t timeout_us, uint16_t flags,
    object correlation, bytes parameters):
    cdef RecordTemplate template = RecordTemplate.__new__(RecordTemplate)
    cdef uint32_t signature_bytes = signature_bytes_of(inputs, count)
    cdef RequestHead *head
    cdef unsigned char *at
    cdef bytes text = b""
    template.count = count
    template.head = PyBytes_FromStringAndSize(NULL, sizeof(RequestHead) + align8(signature_bytes))
    at = <unsigned char *>PyBytes_AS_STRING(template.head)
    memset(at, 0, PyBytes_GET_SIZE(template.head))
    head = <RequestHead *>at
    if isinstance(correlation, str):
        text = correlation.encode()
        flags |= CORRELATION_IS_TEXT
    else:
        head.correlation = correlation
    if len(parameters) + len(text) > REQUEST_PARAMETERS_BYTES_MAX:  # the record counts in 32 bits
        raise BadRequest(
            f"the request's parameters and sequence id have {len(parameters) + len(text)} bytes; "
            f"{REQUEST_PARAMETERS_BYTES_MAX} is the limit")
    head.signature_bytes = signature_bytes
    head.count = <uint16_t>count
    head.flags = flags
    head.requested = requested
    head.timeout_us = timeout_us
    head.parameters_bytes = <uint32_t>len(parameters)
    head.correlation_bytes = <uint32_t>len(text)
    head.batch = batch
    write_signature(at + sizeof(RequestHead), inputs, count)
    template.tail = parameters + text
    return template


cdef uint32_t signature_bytes_of(const InputRef *inputs, int count) noexcept:
    cdef uint32_t total = 0
    cdef int i
    for i in range(count):
        total += <uint32_t>sizeof(SignatureEntry) + 8 * inputs[i].rank
    return total


cdef void write_signature(unsigned char *at, const InputRef *inputs, int count) noexcept:
    cdef SignatureEntry *entry
    cdef int i
    for i in range(count):
        entry = <SignatureEntry *>at
        entry.index = inputs[i].index
        entry.dtype = inputs[i].dtype
        entry.rank = inputs[i].rank
        memcpy(at + sizeof(SignatureEntry), inputs[i].shape, 8 * inputs[i].rank)
        at += sizeof(SignatureEntry) + 8 * inputs[i].rank


@cython.freelist(64)
cdef class AnswerLayout:
    """See record.pxd."""

    def __dealloc__(self):
        PyMem_Free(self.outputs)


cdef lied(ModelSignature model, str what):
    return Internal(f"the worker of model '{model.name}' version {model.version} gave a broken answer: {what}")


cdef AnswerLayout layout_of(ModelSignature model, bytes signature, uint32_t count):
    cdef AnswerLayout layout = model.layouts.get(signature)
    if layout is not None and layout.count == <int>count:
        return layout
    layout = new_layout(model, signature, count)
    if len(model.layouts) >= LAYOUTS_MAX:
        model.layouts.clear()
    model.layouts[signature] = layout
    return layout


cdef AnswerLayout new_layout(ModelSignature model, bytes signature, uint32_t count):
    cdef AnswerLayout layout = AnswerLayout.__new__(AnswerLayout)
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(signature)
    cdef const unsigned char *end = at + PyBytes_GET_SIZE(signature)
    cdef const SignatureEntry *entry
    cdef OutputRef *out
    cdef uint32_t i
    layout.signature = signature
    layout.count = <int>count
    layout.heads_json = []
    layout.outputs = <OutputRef *>PyMem_Malloc((count or 1) * sizeof(OutputRef))
    if layout.outputs == NULL:
        raise MemoryError()
    for i in range(count):
        if end - at < <Py_ssize_t>sizeof(SignatureEntry):
            raise lied(model, f"its signature of {len(signature)} bytes ends before output {i} of {count}")
        entry = <const SignatureEntry *>at
        at += sizeof(SignatureEntry)
        if entry.rank > RANK_MAX or end - at < 8 * entry.rank:
            raise lied(model, f"output {i} claims {entry.rank} dimensions; {(end - at) // 8} follow, {RANK_MAX} is the limit")
        if entry.index >= len(model.outputs):
            raise lied(model, f"output index {entry.index} is beyond the model's {len(model.outputs)} outputs")
        out = &layout.outputs[i]
        out.index = entry.index
        out.dtype = entry.dtype
        out.rank = entry.rank
        out.shape = <const int64_t *>at
        out.data = NULL
        out.place = 0
        at += 8 * entry.rank
        check_output(model, <TensorSpec>model.outputs[entry.index], out)
        layout.heads_json.append(output_json(<TensorSpec>model.outputs[entry.index], out))
    if at != end:
        raise lied(model, f"{end - at} bytes are left over in its signature of {len(signature)} bytes")
    return layout


# Sets out.nbytes.  Type and shape need not be the configuration's, so whoever reads an output goes by these.
cdef int check_output(ModelSignature model, TensorSpec spec, OutputRef *out) except -1:
    cdef uint64_t elements = 1, dim
    cdef uint64_t size = item_bytes(out.dtype) or 4
    cdef int i
    if out.dtype not in BY_CODE:
        raise lied(model, f"output '{spec.name}' has data type code {out.dtype}; known codes are 1 to {max(BY_CODE)}")
    for i in range(out.rank):
        if out.shape[i] < 0:
            raise lied(model, f"output '{spec.name}' has the negative dimension {out.shape[i]}")
        dim = <uint64_t>out.shape[i]
        if dim and elements > (<uint64_t>1 << 62) // dim // size:
            raise lied(model, f"the shape of output '{spec.name}' overflows")
        elements *= dim
    out.nbytes = elements * size
    return 0


cdef bytes output_json(TensorSpec spec, OutputRef *out):
    shape = ",".join([str(out.shape[i]) for i in range(out.rank)])
    return b'{"name":%b,"datatype":"%b","shape":[%b]' % (
        orjson.dumps(spec.name), BY_CODE[out.dtype].wire.encode(), shape.encode())


@cython.freelist(64)
cdef class Answer:
    """See record.pxd."""

    def __dealloc__(self):
        PyMem_Free(self.outputs)

    def is_on_gpu(self, int i) -> bool:
        """Whether output i lies where a copy would wait for a GPU."""
        return is_elsewhere(self, &self.outputs[i])

    def output(self, int i) -> tuple:
        """Name, KServe data type, shape and a copy of the bytes of output i, for tests."""
        return self.output_start(i, INT64_MAX)[:4]

    def output_start(self, int i, Py_ssize_t most) -> tuple:
        """Name, KServe data type, shape, a copy of at most so many bytes and the number of bytes of output i."""
        cdef OutputRef *out
        if not 0 <= i < self.count:
            raise IndexError(i)
        out = &self.outputs[i]
        spec = <TensorSpec>self.input.model.outputs[out.index]
        shape = [out.shape[k] for k in range(out.rank)]
        data = PyBytes_FromStringAndSize(NULL, min(<Py_ssize_t>out.nbytes, max(most, 0)))
        read_output(self, out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return spec.name, BY_CODE[out.dtype].wire, shape, data, out.nbytes


cdef bint is_elsewhere(Answer answer, OutputRef *out) except -1:
    cdef uint64_t start
    return out.data == NULL and out.nbytes > 0 and source_of(answer, out, &start).file.device >= 0


cdef int read_output(Answer answer, OutputRef *out, void *to, uint64_t nbytes) except -1:
    cdef uint64_t start
    cdef Tensor tensor
    if out.data != NULL:
        memcpy(to, out.data, nbytes)
        return 0
    tensor = source_of(answer, out, &start)
    return tensor.read(start, to, nbytes)


cdef Tensor source_of(Answer answer, const OutputRef *out, uint64_t *start):
    cdef ForeignInput foreign
    if answer.tensors is not None:
        start[0] = 0
        return <Tensor>answer.tensors[out - answer.outputs]
    if out.place >> SHARE_SHIFT == LENT:
        start[0] = 0
        return lent_tensor(answer, out, "", ())
    foreign = answer.input.foreign_at(out.place, out.nbytes)
    start[0] = out.place - foreign.place
    return foreign.tensor


cdef Tensor lent_tensor(Answer answer, const OutputRef *out, str name, tuple shape):
    cdef uint64_t offset = out.place & LENT_OFFSET
    return new_tensor(name, out.dtype, shape, answer.lent, offset, out.nbytes, answer.block)


cdef Answer read_answer(InferInput request, Block block, uint32_t record_bytes, MemoryFile lent):
    cdef ModelSignature model = request.model
    cdef Answer answer = Answer.__new__(Answer)
    cdef AnswerHead head
    cdef uint64_t need
    if record_bytes < sizeof(AnswerHead) or record_bytes > block.nbytes:
        raise lied(model, f"its record of {record_bytes} bytes does not fit its block of {block.nbytes} bytes")
    memcpy(&head, block.data, sizeof(AnswerHead))
    if head.count > OUTPUTS_MAX:
        raise lied(model, f"it has {head.count} outputs; {OUTPUTS_MAX} is the limit")
    if head.parameters_bytes > PARAMETERS_BYTES_MAX:
        raise Internal(
            f"model '{model.name}' returned {head.parameters_bytes} bytes of response parameters; "
            f"{PARAMETERS_BYTES_MAX} is the limit")
    need = sizeof(AnswerHead) + ((<uint64_t>head.signature_bytes + 7) & ~<uint64_t>7) + 24 * head.count
    need += head.parameters_bytes
    if need > record_bytes:
        raise lied(model, f"its record has {record_bytes} bytes, its parts need {need}")
    answer.input = request
    answer.block = block
    answer.lent = lent
    answer.signature = PyBytes_FromStringAndSize(<char *>block.data + sizeof(AnswerHead), head.signature_bytes)
    answer.layout = layout_of(model, answer.signature, head.count)
    answer.parameters = PyBytes_FromStringAndSize(
        <char *>block.data + need - head.parameters_bytes, head.parameters_bytes)
    if head.parameters_bytes:
        check_parameters(model, answer.parameters, not request.for_model)
    fill_outputs(answer, block.data + need - head.parameters_bytes - 24 * head.count)
    return answer


# They stand in answers as they are: a model may set anything, and what is no object would break them.
cdef int check_parameters(ModelSignature model, bytes parameters, bint for_client) except -1:
    try:
        values = json.loads(parameters.decode())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise lied(model, f"its parameters are no JSON: {error}") from None
    except ValueError:  # a number of thousands of digits: who writes the answer knows whether it can
        return 0
    if type(values) is not dict:
        raise lied(model, f"its parameters are no JSON object but {shown(values)}")
    if for_client and b"\\ud" in parameters.lower():  # clients refuse an answer that has half a pair
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise lied(
                model, f"its parameters are no text: {error.object[error.start]!r} is half a surrogate pair") from None
    return 0


# Where each output lies: `places` (arena, offset, bytes of each) is in shared memory and read once.
cdef int fill_outputs(Answer answer, const unsigned char *places) except -1:
    cdef AnswerLayout layout = answer.layout
    cdef InferInput request = answer.input
    cdef ModelSignature model = request.model
    cdef uint64_t place[3]
    cdef OutputRef *out
    cdef int i
    answer.outputs = <OutputRef *>PyMem_Malloc((layout.count or 1) * sizeof(OutputRef))
    if answer.outputs == NULL:
        raise MemoryError()
    memcpy(answer.outputs, layout.outputs, layout.count * sizeof(OutputRef))
    answer.count = layout.count
    for i in range(layout.count):
        out = &answer.outputs[i]
        memcpy(place, places + 24 * i, 24)
        name = (<TensorSpec>model.outputs[out.index]).name
        if place[0] == 0 and request.owns(place[1], place[2]):
            out.data = request.address(place[1])
        elif place[0] == 0 and place[1] >> SHARE_SHIFT == LENT and fill_lent(answer, out, place[1], place[2]):
            pass
        elif place[0] == 0 and fill_foreign(answer, out, place[1], place[2]):
            pass
        elif place[0] == 1 and place[2] <= answer.block.nbytes and place[1] <= answer.block.nbytes - place[2]:
            out.data = answer.block.data + place[1]
        else:
            raise lied(
                model, f"output '{name}' at arena {place[0]}, offset {place[1]}, {place[2]} bytes lies outside the "
                f"{'request' if place[0] == 0 else 'answer'}'s blocks")
        if place[2] != out.nbytes and (out.dtype != BYTES or place[2] < out.nbytes or out.nbytes == 0):
            raise lied(model, f"output '{name}' has {place[2]} bytes, its shape asks for {out.nbytes}")
        out.nbytes = place[2]
    return 0


# The input that is returned, by the name that the client knows it by.
cdef Tensor as_output(Answer answer, OutputRef *out, Tensor given):
    name = (<TensorSpec>answer.input.model.outputs[out.index]).name
    return new_tensor(name, given.dtype, given.shape, given.file, given.offset, given.nbytes, given.keep)


# An input that lies elsewhere and was returned as it is, or an output that the worker has written where the client wants
# it.  False: the request has nothing there.
cdef bint fill_foreign(Answer answer, OutputRef *out, uint64_t place, uint64_t nbytes) except -1:
    cdef ForeignInput foreign = answer.input.foreign_at(place, nbytes)
    cdef Block copy
    if foreign is None:
        return False
    out.place = place
    out.data = foreign.tensor.address()
    if out.data != NULL:
        out.data += place - foreign.place
        return True
    if answer.input.shared_outputs >> out.index & 1:
        return True  # from there to there, under the guard
    if foreign.tensor.file.device >= 0 and wants_device(answer.input, foreign.tensor.file.device):
        return True
    # Its owner may take it away while it is being sent.
    copy = answer.input.arena().take(nbytes)
    if nbytes <= LOOP_COPY_BYTES_MAX and foreign.tensor.file.device < 0:
        foreign.tensor.read(place - foreign.place, copy.data, nbytes)
    else:
        if answer.uncopied is None:
            answer.uncopied = []
        answer.uncopied.append(late_copy(as_output(answer, out, foreign.tensor), place - foreign.place, nbytes, copy, 0))
    out.data = copy.data
    if answer.copies is None:
        answer.copies = []
    answer.copies.append(copy)
    return True


# A copy that the worker has made for other models, on the GPU.  False: not asked for, or outside of what it was lent.
cdef bint fill_lent(Answer answer, OutputRef *out, uint64_t place, uint64_t nbytes) except -1:
    cdef uint64_t offset = place & LENT_OFFSET
    if not answer.input.stays or answer.lent is None or out.dtype == BYTES or (
            offset > answer.lent.nbytes or nbytes > answer.lent.nbytes - offset):
        return False
    out.place = place
    out.data = NULL
    return True


cdef bint wants_device(InferInput request, int device) noexcept:
    return request.for_model and request.device_wanted == device


def read(InferInput request, Block block, uint32_t record_bytes) -> Answer:
    """The worker's answer in `block`, checked; for tests and tools (links call read_answer)."""
    return read_answer(request, block, record_bytes, None)
