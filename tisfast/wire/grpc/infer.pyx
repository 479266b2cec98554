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
from tisfast.wire.grpc.contents cimport Contents
from tisfast.wire.grpc.cursor cimport BROKEN, FIELD, LEN, Cursor, Field, cursor, next_field
from tisfast.wire.grpc.request cimport parse_message
from tisfast.wire.grpc.scan cimport ID, MODEL_NAME, MODEL_VERSION, RAW_CONTENTS, Message, Raw, scan
from tisfast.wire.grpc.values cimport broken, text_of
from tisfast.wire.head cimport canonical_version
from tisfast.wire.infer cimport fetch, new_request, walk_strings
from tisfast.wire.plan cimport FROM_BINARY, FROM_CONTENTS, FROM_REGION, InferPlan, TensorPlan
from tisfast.wire.record cimport InferInput
from tisfast.wire.signature cimport BYTES, ModelSignature, TensorSpec, item_bytes

from tisfast import limits
from tisfast.errors import BadRequest, TisError

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


cdef InferInput read_grpc_infer(
        ModelSignature model, Arena arena, Block body, uint64_t start, uint64_t nbytes, uint64_t max_input_bytes,
        Regions regions, bytes forwarded):
    cdef uint32_t raws_max = <uint32_t>len(model.inputs) + SURPLUS_INPUTS_MAX
    cdef Message message = scan(body.data + start, nbytes, raws_max)
    cdef InferPlan plan = None
    try:
        if message.in_order and message.head_end <= CACHED_HEAD_BYTES_MAX:
            plan = remembered_plan(model, message, regions, forwarded)
        else:
            plan = parse_message(model, message, regions, forwarded)
        align_tensors(plan, body, start)
        return assemble(plan, arena, body, start, max_input_bytes, regions)
    except TisError as error:  # in a stream the id tells which request was refused
        # Tensors may have been moved over the message's head by now.
        error.facts.setdefault("id", plan.id if plan is not None else id_of(message))
        raise


# The head without the id is what repeats: clients number their requests.
cdef bytes key_of(Message message):
    cdef uint64_t skipped = message.id_end - message.id_start
    cdef bytes key = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(message.head_end - skipped))
    cdef char *at = PyBytes_AS_STRING(key)
    memcpy(at, message.data, message.id_start)
    memcpy(at + message.id_start, message.data + message.id_end, message.head_end - message.id_end)
    return key


cdef InferPlan remembered_plan(ModelSignature model, Message message, Regions regions, bytes forwarded):
    cdef bytes key = key_of(message)
    cdef InferPlan plan
    if forwarded:
        key = forwarded + b"\0" + key  # no message begins with "{", the beginning of a group that protobuf 3 has not
    plan = model.messages.get(key)
    if plan is not None and message.id_bytes <= ID_BYTES_MAX and fits(plan, message):
        plan.id = id_of(message)
        return plan
    plan = parse_message(model, message, regions, forwarded)
    if plan.all_binary:
        if len(model.messages) >= CACHED_HEADS_MAX:
            model.messages.clear()
        model.messages[key] = plan
    return plan


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
cdef bint fits(InferPlan plan, Message message) noexcept:
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
        tensor.offset = message.raws[entry].at
        if tensor.dtype == BYTES:
            tensor.nbytes = message.raws[entry].nbytes
        elif tensor.nbytes != message.raws[entry].nbytes:
            return False
    return used == message.raw_count


cdef inline uint64_t misplaced(TensorPlan *tensor, uint64_t base) noexcept:
    return (base + tensor.offset) & ((item_bytes(tensor.dtype) or 1) - 1)


# Moves raw tensors towards the message's start until each lies at a multiple of its element's size.  In the order in
# which they lie; what finds no room in front of it is copied by the assembly.
cdef int align_tensors(InferPlan plan, Block body, uint64_t start) noexcept:
    cdef unsigned char *data = body.data + start
    cdef uint64_t base = body.offset + start
    cdef uint64_t end = 0, floor = 0    # of the tensor before: where it ends now, and behind where it began
    cdef uint64_t by
    cdef TensorPlan *tensor
    cdef int i
    for i in range(plan.count):
        if plan.tensors[i].source == FROM_BINARY and misplaced(&plan.tensors[i], base):
            break
    else:
        return 0
    while True:
        tensor = next_raw(plan, floor)
        if tensor == NULL:
            return 0
        floor = tensor.offset + 1
        by = misplaced(tensor, base)
        if by and tensor.offset - end >= by:
            memmove(data + tensor.offset - by, data + tensor.offset, tensor.nbytes)
            tensor.offset -= by
        end = tensor.offset + tensor.nbytes


# The first raw tensor that begins at `floor` or behind it; no two begin at one place.
cdef TensorPlan *next_raw(InferPlan plan, uint64_t floor) noexcept:
    cdef TensorPlan *best = NULL
    cdef TensorPlan *tensor
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if tensor.source == FROM_BINARY and tensor.offset >= floor and (best == NULL or tensor.offset < best.offset):
            best = tensor
    return best


cdef inline uint64_t align64(uint64_t n) noexcept:
    return (n + 63) & ~<uint64_t>63


cdef inline bint stays(TensorPlan *tensor, uint64_t base) noexcept:
    return tensor.source == FROM_BINARY and misplaced(tensor, base) == 0


cdef InferInput assemble(
        InferPlan plan, Arena arena, Block body, uint64_t start, uint64_t max_input_bytes, Regions regions):
    cdef InferInput request = new_request(plan, regions)
    cdef Py_ssize_t id_bytes
    cdef const char *id_text = PyUnicode_AsUTF8AndSize(plan.id, &id_bytes)
    cdef uint64_t record_bytes = plan.template.nbytes(id_bytes)
    cdef uint64_t elsewhere = measure(plan, body.offset + start, max_input_bytes)
    cdef uint64_t free = 0
    cdef Block home = body          # of the record: in front of the message, where there is room
    request.body = body
    if record_bytes > start:
        free = align64(record_bytes)
        home = request.extra = arena.take(free + elsewhere)
    elif elsewhere:
        request.extra = arena.take(elsewhere)
    place(plan, request, start, free, regions)
    request.record_bytes = <uint32_t>record_bytes
    request.record_offset = home.offset
    plan.template.write(home.data, plan.places, id_text, <uint32_t>id_bytes)
    if request.foreign is not None:
        request.set_foreign(plan.template, request.foreign)
    return request


# Bytes needed for tensors that do not lie ready in the message, each rounded up to 64.
cdef uint64_t measure(InferPlan plan, uint64_t base, uint64_t max_input_bytes) except? 0xFFFFFFFFFFFFFFFF:
    cdef TensorPlan *tensor
    cdef uint64_t total = 0
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if stays(tensor, base) or tensor.referred:
            continue
        if tensor.source == FROM_CONTENTS and tensor.nbytes > max_input_bytes:
            raise BadRequest(
                f"contents of input '{(<TensorSpec>plan.model.inputs[tensor.index]).name}' have {tensor.nbytes} bytes as "
                f"a tensor, {max_input_bytes} is the limit; send it as raw_input_contents")
        total += align64(tensor.nbytes)
    return total


# Copies or decodes what does not stay, from `free` on in the extra block, and notes where each tensor lies.
cdef int place(InferPlan plan, InferInput request, uint64_t start, uint64_t free, Regions regions) except -1:
    cdef Block body = request.body
    cdef TensorPlan *tensor
    cdef unsigned char *at
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        plan.places[2 * i + 1] = tensor.nbytes
        if tensor.referred:
            plan.places[2 * i] = 0  # the link says where, to each worker in its words
            continue
        if tensor.nbytes == 0 or stays(tensor, body.offset + start):
            at = body.data + start + (tensor.offset if tensor.source == FROM_BINARY else 0)
            plan.places[2 * i] = body.offset + <uint64_t>(at - body.data)
        else:
            at = request.extra.data + free
            plan.places[2 * i] = request.extra.offset + free
            free += align64(tensor.nbytes)
            if tensor.source == FROM_REGION:
                fetch(plan, tensor, regions, at)
                continue
            if tensor.source == FROM_CONTENTS:
                (<Contents>plan.data[tensor.position]).fill(at)
            else:
                memcpy(at, body.data + start + tensor.offset, tensor.nbytes)
        if tensor.dtype == BYTES:
            walk_strings(plan, tensor, at)
    return 0


def parse(
    ModelSignature model, Arena arena, bytes message, *, uint64_t max_input_bytes=1 << 31, Regions regions=None,
    int64_t start=-1, bytes forwarded=b"") -> InferInput:
    """Parse a message as though it had been received into a block of the arena, at `start` where that is given."""
    cdef uint64_t nbytes = <uint64_t>PyBytes_GET_SIZE(message)
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(message)
    cdef Peek peek = Peek()
    cdef Block block
    peek.read(data, nbytes, nbytes)
    if start < 0:
        start = <int64_t>message_start(model.record_room, peek.raw_at)
    block = arena.take(<uint64_t>start + nbytes)
    memcpy(block.data + start, data, nbytes)
    return read_grpc_infer(model, arena, block, <uint64_t>start, nbytes, max_input_bytes, regions, forwarded)


def peek(bytes message, total: int | None = None) -> tuple:
    """(state, name, version, raw_at) of the beginning of a message of `total` bytes, for tests."""
    cdef Peek found = Peek()
    cdef uint64_t nbytes = <uint64_t>PyBytes_GET_SIZE(message)
    cdef int state = found.read(
        <const unsigned char *>PyBytes_AS_STRING(message), nbytes, nbytes if total is None else total)
    return state, found.name, found.version, found.raw_at
