"""A ModelInferRequest becomes an InferInput: find or make the plan, place the tensors, write the record.  Layer 2 (wire).

The message but for its id and raw tensors is remembered with its plan (bounded by limits.HEAD_CACHE_*), as heads of
HTTP requests are.  The head means nothing any more once it is parsed, so a raw tensor whose type asks for another
alignment is moved over it: never a second block for what was received into one.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove
from tisfast.native.memory cimport Arena, Block
from tisfast.native.region cimport Regions
from tisfast.wire.align cimport align64
from tisfast.wire.draft cimport Draft, DraftInput, InferBody, new_draft
from tisfast.wire.grpc.contents cimport Contents
from tisfast.wire.grpc.cursor cimport BROKEN, FIELD, LEN, Cursor, Field, cursor, next_field
from tisfast.wire.grpc.message_scan cimport ID, MODEL_NAME, MODEL_VERSION, RAW_CONTENTS, Message, Raw, scan
from tisfast.wire.grpc.request cimport parse_message
from tisfast.wire.grpc.values cimport broken, text_of
from tisfast.wire.head cimport canonical_version
from tisfast.wire.infer cimport fetch, new_request, walk_strings
from tisfast.wire.infer_plan cimport FROM_BINARY, FROM_CONTENTS, FROM_REGION, InferPlan, OutputChoice, TensorPlan
from tisfast.wire.outputs cimport place_outputs
from tisfast.wire.record cimport InferInput
from tisfast.wire.signature cimport BYTES, ModelSignature, TensorSpec, item_bytes

from tisfast import limits
from tisfast.errors import BadRequest, TisError

cdef enum:
    GLANCE_FIELDS = 256     # of a message: name, version, id and the tensors of nearly all models

cdef uint64_t CACHED_HEAD_BYTES_MAX = limits.HEAD_CACHE_BYTES_MAX
cdef Py_ssize_t CACHED_HEADS_MAX = limits.HEAD_CACHE_ENTRIES_MAX
cdef uint64_t ID_BYTES_MAX = limits.REQUEST_ID_BYTES_MAX
cdef uint32_t SURPLUS_INPUTS_MAX = limits.SURPLUS_INPUTS_MAX


cdef class Peek:
    """See infer.pxd."""

    cdef int read(self, const unsigned char *data, uint64_t nbytes, uint64_t total) except -1:
        cdef Cursor c = cursor(data, nbytes)
        cdef bint others = False    # a field behind name and version was met
        cdef Field field
        cdef int state
        self.name = self.version = self.id = ""
        self.raw_at = 0
        while True:
            field.number = 0
            state = next_field(&c, &field)
            if state != FIELD:
                break
            if field.kind == LEN and MODEL_NAME <= field.number <= MODEL_VERSION:
                if others and nbytes < total:
                    return PEEK_NONE
                self.take(&field)
                continue
            others = True
            if field.kind == LEN and field.number == ID:
                self.id = text_of(&field)
            if field.kind == LEN and field.number == RAW_CONTENTS and self.raw_at == 0:
                self.raw_at = field.data - data
        if nbytes == total:
            if state == BROKEN:
                raise broken()
        elif state == BROKEN and field.number > MODEL_VERSION:  # cut off there, or broken: the whole message will tell
            others = True
            if field.number == RAW_CONTENTS and field.kind == LEN and c.at < c.end and self.raw_at == 0:
                self.raw_at = c.at - data
        if nbytes < total and (not others or not self.name):
            return PEEK_NONE if others else PEEK_MORE
        if self.version:
            self.version = canonical_version(self.version)
        return PEEK_FOUND

    cdef int take(self, const Field *field) except -1:
        if field.number == MODEL_NAME:
            self.name = text_of(field)
        else:
            self.version = text_of(field)
        return 0


cdef uint64_t head_bytes(const unsigned char *data, uint64_t nbytes) noexcept:
    cdef Cursor c = cursor(data, nbytes)
    cdef Field field
    cdef uint64_t raw = 0
    cdef int seen = 0
    while seen < GLANCE_FIELDS and next_field(&c, &field) == FIELD:
        seen += 1
        if field.kind == LEN and field.number == RAW_CONTENTS:
            raw += field.nbytes
    return nbytes - raw


cdef InferInput read_grpc_infer(InferBody body):
    cdef uint32_t raws_max = <uint32_t>len(body.model.inputs) + SURPLUS_INPUTS_MAX
    cdef Message message = scan(body.block.data + body.start, body.nbytes, raws_max)
    cdef Draft draft = None
    try:
        if message.in_order and message.head_end <= CACHED_HEAD_BYTES_MAX:
            draft = remembered_draft(body, message)
        else:
            draft = read_draft(body, message)
        return assemble(draft, body)
    except TisError as error:  # in a stream the id tells which request was refused
        # Tensors may have been moved over the message's head by now.
        error.facts.setdefault("id", draft.id if draft is not None else id_of(message))
        raise


# The head without the id is what repeats: clients number their requests.
cdef bytes key_of(Message message):
    cdef uint64_t skipped = message.id_end - message.id_start
    cdef bytes key = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(message.head_end - skipped))
    cdef char *at = PyBytes_AS_STRING(key)
    memcpy(at, message.data, message.id_start)
    memcpy(at + message.id_start, message.data + message.id_end, message.head_end - message.id_end)
    return key


cdef Draft read_draft(InferBody body, Message message):
    cdef list values = []
    cdef InferPlan plan = parse_message(body, message, values)
    return new_draft(plan, plan.id, values)


cdef Draft remembered_draft(InferBody body, Message message):
    cdef dict remembered = body.model.messages
    cdef bytes key = key_of(message)
    cdef InferPlan plan
    cdef Draft draft
    if body.forwarded:
        key = body.forwarded + b"\0" + key  # no message begins with "{", the beginning of a group that protobuf 3 has not
    plan = remembered.get(key)
    if plan is not None and message.id_bytes <= ID_BYTES_MAX:
        draft = new_draft(plan, id_of(message), None)
        if fits(draft, message):
            return draft
    draft = read_draft(body, message)
    if draft.plan.all_binary:
        if len(remembered) >= CACHED_HEADS_MAX:
            remembered.clear()
        remembered[key] = draft.plan
    return draft


cdef str id_of(Message message):
    if message.id_text == NULL:
        return ""
    try:
        return PyUnicode_DecodeUTF8(<const char *>message.id_text, <Py_ssize_t>message.id_bytes, NULL)
    except UnicodeDecodeError:
        raise broken() from None


# Which raw entry is the tensor's: regions take none.
cdef inline uint32_t entry_of(InferPlan plan, TensorPlan *tensor) noexcept:
    cdef uint32_t entry = tensor.position
    cdef int i
    if plan.regional:
        for i in range(plan.count):
            if plan.tensors[i].source == FROM_REGION and plan.tensors[i].position < tensor.position:
                entry -= 1
    return entry


# Takes over where this message's tensors lie; False when they have not the sizes that the head asks for.
cdef bint fits(Draft draft, Message message) noexcept:
    cdef InferPlan plan = draft.plan
    cdef TensorPlan *tensor
    cdef uint32_t entry, used = 0
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if tensor.source != FROM_BINARY:
            continue
        entry = entry_of(plan, tensor)
        if entry >= message.raw_count:
            return False
        used += 1
        if tensor.dtype != BYTES and tensor.nbytes != message.raws[entry].nbytes:
            return False
        draft.inputs[i].offset = message.raws[entry].at
        draft.inputs[i].nbytes = message.raws[entry].nbytes
    return used == message.raw_count


# How far input i, whose message is at `base`, lies behind a multiple of its element's size.
cdef inline uint64_t misplaced(Draft draft, int i, uint64_t base) noexcept:
    return (base + draft.inputs[i].offset) & ((item_bytes(draft.plan.tensors[i].dtype) or 1) - 1)


# Moves raw tensors towards the message's start until each lies at a multiple of its element's size.  In the order in
# which they lie; what finds no room in front of it is copied by the assembly.
cdef int align_tensors(Draft draft, Block body, uint64_t start) noexcept:
    cdef InferPlan plan = draft.plan
    cdef unsigned char *data = body.data + start
    cdef uint64_t base = body.offset + start
    cdef uint64_t end = 0, floor = 0    # of the tensor before: where it ends now, and behind where it began
    cdef uint64_t by
    cdef DraftInput *input
    cdef int i
    for i in range(plan.count):
        if plan.tensors[i].source == FROM_BINARY and misplaced(draft, i, base):
            break
    else:
        return 0
    while True:
        i = next_raw(draft, floor)
        if i < 0:
            return 0
        input = &draft.inputs[i]
        floor = input.offset + 1
        by = misplaced(draft, i, base)
        if by and input.offset - end >= by:
            memmove(data + input.offset - by, data + input.offset, input.nbytes)
            input.offset -= by
        end = input.offset + input.nbytes


# The first raw tensor that begins at `floor` or behind it, -1 for none; no two begin at one place.
cdef int next_raw(Draft draft, uint64_t floor) noexcept:
    cdef int best = -1
    cdef int i
    for i in range(draft.plan.count):
        if draft.plan.tensors[i].source == FROM_BINARY and draft.inputs[i].offset >= floor and (
                best < 0 or draft.inputs[i].offset < draft.inputs[best].offset):
            best = i
    return best


cdef inline bint stays(Draft draft, int i, uint64_t base) noexcept:
    return draft.plan.tensors[i].source == FROM_BINARY and misplaced(draft, i, base) == 0


cdef InferInput assemble(Draft draft, InferBody body):
    cdef InferPlan plan = draft.plan
    cdef InferInput request = new_request(draft, body.regions)
    cdef Py_ssize_t id_bytes
    cdef const char *id_text = PyUnicode_AsUTF8AndSize(draft.id, &id_bytes)
    cdef uint64_t record_bytes = plan.template.nbytes(id_bytes)
    cdef uint64_t elsewhere
    cdef uint64_t free = 0
    cdef Block home = body.block    # of the record: in front of the message, where there is room
    # From here on the message is no message any more: new_request may still have sent it to a codec process.
    align_tensors(draft, body.block, body.start)
    elsewhere = measure(draft, body.block.offset + body.start, body.max_input_bytes)
    request.body = body.block
    if record_bytes > body.start:
        free = align64(record_bytes)
        home = request.extra = body.arena.take(free + elsewhere)
    elif elsewhere:
        request.extra = body.arena.take(elsewhere)
    place(draft, request, body.start, free, body.regions)
    request.record_bytes = <uint32_t>record_bytes
    request.record_offset = home.offset
    plan.template.write(home.data, draft.places, id_text, <uint32_t>id_bytes)
    if plan.template.output_places:
        place_outputs(request, plan, (<OutputChoice>request.outputs).ways)
    if request.foreign is not None:
        request.set_foreign(plan.template, request.foreign)
    return request


# Bytes needed for tensors that do not lie ready in the message, each rounded up to 64.
cdef uint64_t measure(Draft draft, uint64_t base, uint64_t max_input_bytes) except? 0xFFFFFFFFFFFFFFFF:
    cdef InferPlan plan = draft.plan
    cdef TensorPlan *tensor
    cdef uint64_t total = 0
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if stays(draft, i, base) or draft.inputs[i].referred:
            continue
        if tensor.source == FROM_CONTENTS and tensor.nbytes > max_input_bytes:
            raise BadRequest(
                f"contents of input '{(<TensorSpec>plan.model.inputs[tensor.index]).name}' have {tensor.nbytes} bytes as "
                f"a tensor, {max_input_bytes} is the limit; send it as raw_input_contents")
        total += align64(draft.inputs[i].nbytes)
    return total


# Copies or decodes what does not stay, from `free` on in the extra block, and notes where each tensor lies.
cdef int place(Draft draft, InferInput request, uint64_t start, uint64_t free, Regions regions) except -1:
    cdef InferPlan plan = draft.plan
    cdef Block body = request.body
    cdef DraftInput *input
    cdef int i, source
    cdef unsigned char *at
    for i in range(plan.count):
        source = plan.tensors[i].source
        input = &draft.inputs[i]
        draft.places[2 * i + 1] = input.nbytes
        if input.referred:
            draft.places[2 * i] = 0  # the link says where, to each worker in its words
            continue
        if input.nbytes == 0 or stays(draft, i, body.offset + start):
            at = body.data + start + (input.offset if source == FROM_BINARY else 0)
            draft.places[2 * i] = body.offset + <uint64_t>(at - body.data)
        else:
            at = request.extra.data + free
            draft.places[2 * i] = request.extra.offset + free
            free += align64(input.nbytes)
            if source == FROM_REGION:
                fetch(draft, i, regions, request, at)
                continue
            if source == FROM_CONTENTS:
                (<Contents>draft.values[plan.tensors[i].position]).fill(at)
            else:
                memcpy(at, body.data + start + input.offset, input.nbytes)
        if plan.tensors[i].dtype == BYTES:
            walk_strings(draft, i, at)
    return 0


def parse(
    ModelSignature model, Arena arena, bytes message, *, uint64_t max_input_bytes=1 << 31, Regions regions=None,
    int64_t start=-1, bytes forwarded=b"") -> InferInput:
    """Parse a message as though it had been received into a block of the arena, at `start` where that is given."""
    cdef InferBody body = InferBody.__new__(InferBody)
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(message)
    cdef Peek peek = Peek()
    body.model, body.arena, body.regions, body.forwarded = model, arena, regions, forwarded
    body.nbytes, body.max_input_bytes = <uint64_t>PyBytes_GET_SIZE(message), max_input_bytes
    peek.read(data, body.nbytes, body.nbytes)
    body.start = message_start(model.record_room, peek.raw_at) if start < 0 else <uint64_t>start
    body.block = arena.take(body.start + body.nbytes)
    memcpy(body.block.data + body.start, data, body.nbytes)
    return read_grpc_infer(body)


def peek(bytes message, total: int | None = None) -> tuple:
    """(state, name, version, raw_at) of the beginning of a message of `total` bytes, for tests."""
    cdef Peek found = Peek()
    cdef uint64_t nbytes = <uint64_t>PyBytes_GET_SIZE(message)
    cdef int state = found.read(
        <const unsigned char *>PyBytes_AS_STRING(message), nbytes, nbytes if total is None else total)
    return state, found.name, found.version, found.raw_at
