"""An inference body becomes an InferInput: find or make the plan, place the tensors, write the record.  Layer 2 (wire).

A head whose tensors are all binary or in regions is remembered with its plan (bounded by limits.HEAD_CACHE_*).  Clients number their
requests, and put the id first: so a head that starts with {"id":"…" is remembered without that id, and a stream of
numbered requests is one entry.  Such a key says whether an id was cut off, and where the JSON ends and forwarded headers begin, in
bytes that no JSON text holds: what is remembered of one request never comes to another that only looks like it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from tisfast.native.memory cimport Arena, Block
from tisfast.native.region cimport ClientFile, Region, Regions
from tisfast.wire.align cimport align64
from tisfast.wire.draft cimport Draft, InferBody, new_draft
from tisfast.wire.infer_plan cimport FROM_BINARY, FROM_JSON, FROM_REGION, InferPlan, OutputChoice, TensorPlan, find
from tisfast.wire.json_data cimport binary_head, fill_numbers, fill_strings, load_json, measure_strings
from tisfast.wire.json_numbers cimport SPANS_MAX, Span, elided, find_spans, is_spelled, read_span
from tisfast.wire.late_copies cimport LateCopy, check_strings, region_copy, walk
from tisfast.wire.outputs cimport place_outputs
from tisfast.wire.record cimport InferInput
from tisfast.wire.request cimport parse_plan, raw_plan
from tisfast.wire.signature cimport BYTES, ModelSignature, TensorSpec
from tisfast.wire.tensors cimport Tensor, by_reference, new_foreign, new_tensor

from tisfast import limits
from tisfast.errors import BadRequest, Internal
from tisfast.wire import refusals


class Unusual(Exception):
    """A number that is left to the parser."""


cdef uint64_t CACHED_HEAD_BYTES_MAX = limits.HEAD_CACHE_BYTES_MAX
cdef str NO_OBJECT = "a JSON object was expected; a body that is one tensor, or a file, needs Inference-Header-Content-Length: 0"
cdef Py_ssize_t CACHED_HEADS_MAX = limits.HEAD_CACHE_ENTRIES_MAX
cdef Py_ssize_t FOREIGN_INPUTS_MAX = limits.FOREIGN_INPUTS_MAX
cdef uint64_t ID_BYTES_MAX = limits.REQUEST_ID_BYTES_MAX
cdef const char *ID_START = b'{"id":'


cdef InferInput read_infer(InferBody body):
    cdef ModelSignature model = body.model
    cdef InferPlan plan
    cdef uint64_t json_bytes = body.nbytes if body.head_bytes < 0 else <uint64_t>body.head_bytes
    if json_bytes > body.nbytes:
        raise BadRequest(f"inference header size should be in range (0, {body.nbytes}), got: {body.head_bytes}")
    if json_bytes == 0:
        plan = raw_plan(body)
        return assemble(new_draft(plan, plan.id, None), body, body.start)
    if json_bytes > body.max_input_bytes:
        raise BadRequest(
            f"request JSON size of {json_bytes} bytes exceeds the maximum allowed input size of {body.max_input_bytes} "
            "bytes. Use --http-max-input-size to increase the limit.")
    if (body.head_bytes <= 0 and not model.region_heads) or json_bytes > CACHED_HEAD_BYTES_MAX:
        return read_text(body, json_bytes)
    return assemble(remembered_draft(body, json_bytes), body, body.start + json_bytes)


# A request whose tensors are spelled out in its JSON, or whose head is too long to be remembered.
cdef InferInput read_text(InferBody body, uint64_t json_bytes):
    cdef ModelSignature model = body.model
    cdef const unsigned char *data = body.block.data + body.start
    cdef Span spans[SPANS_MAX]
    cdef int count = find_spans(data, json_bytes, spans) if body.nbytes == json_bytes else 0
    cdef uint64_t begin = 0, skip = leading_id(data, json_bytes, &begin)
    cdef bytes key = elided(data, json_bytes, skip, spans, count, CACHED_HEAD_BYTES_MAX, body.forwarded) if count else None
    cdef InferPlan plan = None
    cdef Draft draft
    if key is not None and skip <= ID_BYTES_MAX + begin + 1:
        plan = model.heads.get(key)
    if plan is not None:
        draft = new_draft(plan, id_at(data, begin, skip, plan), None)
        draft.spans = spans  # the draft does not outlive this call
        try:
            return assemble(draft, body, body.start + body.nbytes)
        except Unusual:
            pass  # the parser below knows what it is
    draft = read_draft(body, json_bytes)
    plan = draft.plan
    model.region_heads = plan.regional and plan.all_binary
    request = assemble(draft, body, body.start + json_bytes)
    # With an escape in it, a text may hold a "data" that is spelled otherwise.
    if key is not None and is_all_spelled(plan, count) and b"\\" not in key and not names_id(key, skip):
        remember(model, key, plan)
    return request


cdef Draft read_draft(InferBody body, uint64_t json_bytes):
    cdef const unsigned char *data = body.block.data + body.start
    cdef list values = []
    cdef InferPlan plan
    try:
        doc = load_json(data, json_bytes)
    except Internal as error:
        # Tensors behind the JSON whose beginning nobody told, or told wrongly: the request is at fault, and hears how.
        doc = binary_head(data, json_bytes)
        if doc is not None:
            parse_plan(body, doc, body.nbytes - json_bytes, values)
        if not begins_object(data, json_bytes):
            raise Internal(f"{error.message} ({NO_OBJECT})") from None
        raise
    plan = parse_plan(body, doc, body.nbytes - json_bytes, values)
    return new_draft(plan, plan.id, values)


cdef bint begins_object(const unsigned char *data, uint64_t n) noexcept:
    cdef uint64_t at = 0
    while at < n and data[at] in (c" ", c"\t", c"\r", c"\n"):
        at += 1
    return at == n or data[at] == c"{"


# A second "id" further on, perhaps in escapes, would win over the leading one, so such a text is not remembered.
cdef bint names_id(bytes key, uint64_t skip):
    return skip > 0 and (b'"id"' in key or b"\\" in key)


cdef int remember(ModelSignature model, bytes key, InferPlan plan) except -1:
    if len(model.heads) >= CACHED_HEADS_MAX:
        model.heads.clear()
    model.heads[key] = plan
    return 0


# Every input has one array of numbers, and these are all: so they come in the order of the inputs.
cdef bint is_all_spelled(InferPlan plan, int count) noexcept:
    cdef int i
    if plan.count != count or plan.regional:
        return False
    for i in range(plan.count):
        if plan.tensors[i].source != FROM_JSON or not is_spelled(plan.tensors[i].dtype):
            return False
    return True


cdef uint64_t leading_id(const unsigned char *data, uint64_t n, uint64_t *begin) noexcept:
    cdef uint64_t i
    cdef unsigned char c
    if n < 9 or memcmp(data, ID_START, 6) != 0:
        return 0
    begin[0] = 8 if data[6] == c' ' else 7
    if data[begin[0] - 1] != c'"':
        return 0
    for i in range(begin[0], n):
        c = data[i]
        if c == c'"':
            return i + 1
        if c < 0x20 or c > 0x7E or c == c'\\':
            return 0
    return 0


# The id of a request with a remembered plan: what leading_id found, or as in the head that was parsed.
cdef inline str id_at(const unsigned char *data, uint64_t begin, uint64_t skip, InferPlan plan):
    return PyUnicode_DecodeASCII(<char *>data + begin, skip - begin - 1, NULL) if skip else plan.id


cdef Draft remembered_draft(InferBody body, uint64_t head_bytes):
    cdef ModelSignature model = body.model
    cdef const unsigned char *data = body.block.data + body.start
    cdef uint64_t begin = 0
    cdef uint64_t skip = leading_id(data, head_bytes, &begin)
    cdef bytes key = elided(data, head_bytes, skip, NULL, 0, CACHED_HEAD_BYTES_MAX, body.forwarded)
    cdef InferPlan plan = model.heads.get(key)
    cdef Draft draft
    if plan is not None and plan.binary_bytes == body.nbytes - head_bytes and skip <= ID_BYTES_MAX + begin + 1:
        return new_draft(plan, id_at(data, begin, skip, plan), None)
    draft = read_draft(body, head_bytes)
    if draft.plan.all_binary and not names_id(key, skip):
        remember(model, key, draft.plan)
    return draft


cdef InferInput assemble(Draft draft, InferBody body, uint64_t tail):
    cdef InferPlan plan = draft.plan
    cdef InferInput request = new_request(draft, body.regions)
    cdef Py_ssize_t id_bytes
    cdef const char *id_text = PyUnicode_AsUTF8AndSize(draft.id, &id_bytes)
    cdef uint64_t tensors = measure(draft, body.max_input_bytes)
    cdef uint64_t record_bytes = plan.template.nbytes(id_bytes)
    cdef uint64_t need = align64(record_bytes) + tensors
    cdef uint64_t free = align64(record_bytes)
    cdef Block home = body.block       # of the record
    request.record_bytes = <uint32_t>record_bytes
    if plan.stays:
        request.body = body.block
        if record_bytes > body.start:
            home = request.extra = body.arena.take(need)
        elif tensors:
            request.extra = body.arena.take(tensors)
            free = 0
    elif plan.binary_bytes or draft.spans != NULL or need > body.block.nbytes:
        home = request.extra = body.arena.take(need)
    else:
        request.extra = body.block     # its JSON has become Python values
    place(draft, request, body.block, tail, free, body.regions)
    request.record_offset = home.offset
    plan.template.write(home.data, draft.places, id_text, <uint32_t>id_bytes)
    if plan.template.output_places:
        place_outputs(request, plan, (<OutputChoice>request.outputs).ways)
    if request.foreign is not None:
        request.set_foreign(plan.template, request.foreign)
    return request


cdef InferInput new_request(Draft draft, Regions regions):
    cdef InferPlan plan = draft.plan
    cdef InferInput request = InferInput.__new__(InferInput)
    request.model = plan.model
    request.id = draft.id
    request.batch = plan.batch
    request.priority = plan.priority
    request.timeout_us = plan.timeout_us
    request.correlation = plan.correlation
    request.sequence_flags = plan.flags
    request.requested = plan.requested
    request.shape_key = plan.shape_key
    if plan.regional:
        look_at_regions(draft, request, regions)
    request.outputs = plan.outputs
    if plan.outputs.in_regions:
        request.outputs = plan.outputs.bind(regions, plan.model)
        request.shared_outputs = (<OutputChoice>request.outputs).shared
    return request


class ReadElsewhere(Exception):
    """The inputs that must be copied out of regions are so long that a codec process is to read the request."""


# Before anything is reserved for them: checks the bounds, and decides what stays where it is.
cdef int look_at_regions(Draft draft, InferInput request, Regions regions) except -1:
    cdef InferPlan plan = draft.plan
    cdef TensorPlan *tensor
    cdef Region region
    cdef list foreign = []
    cdef uint64_t copied = 0
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if tensor.source != FROM_REGION:
            continue
        region = find(regions, <str>plan.names[tensor.position])
        region.check(tensor.offset, tensor.nbytes, "input", (<TensorSpec>plan.model.inputs[tensor.index]).name)
        if region.file is not None and len(foreign) < FOREIGN_INPUTS_MAX and by_reference(
                plan.model, tensor.dtype, region.file, region.offset + tensor.offset, tensor.nbytes):
            draft.inputs[i].referred = True
            foreign.append(new_foreign(in_place(plan, tensor, region), <uint32_t>i))
        elif region.device < 0:  # threads copy what lies on a GPU
            copied += tensor.nbytes
    if copied > regions.copied_at_once:
        raise ReadElsewhere()
    if foreign:
        request.foreign = foreign  # the record learns of it when it is written
    return 0


# Its file is looked at now, as it would be for a copy; what happens to it later is caught where it is read.
cdef Tensor in_place(InferPlan plan, TensorPlan *tensor, Region region):
    cdef uint64_t offset = region.offset + tensor.offset
    cdef int i
    if region.device < 0:
        (<ClientFile>region.file).check_size(offset + tensor.nbytes)
    shape = tuple([tensor.shape[i] for i in range(tensor.rank)])
    name = (<TensorSpec>plan.model.inputs[tensor.index]).name
    return new_tensor(name, tensor.dtype, shape, region.file, offset, tensor.nbytes, region)


cdef int fetch(Draft draft, int i, Regions regions, InferInput request, unsigned char *at) except -1:
    cdef TensorPlan *tensor = &draft.plan.tensors[i]
    cdef Region region = find(regions, <str>draft.plan.names[tensor.position])
    cdef LateCopy copy
    if region.device < 0:
        region.read(tensor.offset, at, tensor.nbytes)
        return walk_strings(draft, i, at) if tensor.dtype == BYTES else 0
    copy = region_copy(
        name_of(draft.plan, tensor), region, tensor.offset, tensor.nbytes, request.extra,
        <uint64_t>(at - request.extra.data))
    if tensor.dtype == BYTES:
        copy.elements, copy.who = <int64_t>tensor.elements, draft.who()
    request.copy_later(copy)
    return 0


# True when the tensor's bytes are used where they were received.
cdef inline bint stays(InferPlan plan, TensorPlan *tensor) noexcept:
    return plan.stays and tensor.source == FROM_BINARY


cdef inline str name_of(InferPlan plan, TensorPlan *tensor):
    return (<TensorSpec>plan.model.inputs[tensor.index]).name


# Bytes needed for tensors that must be written elsewhere, each rounded up to 64.
cdef uint64_t measure(Draft draft, uint64_t max_input_bytes) except? 0xFFFFFFFFFFFFFFFF:
    cdef InferPlan plan = draft.plan
    cdef TensorPlan *tensor
    cdef uint64_t total = 0
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if tensor.source == FROM_JSON and tensor.dtype == BYTES:
            measure_texts(draft, i, max_input_bytes)
        if not stays(plan, tensor) and not draft.inputs[i].referred:
            total += align64(draft.inputs[i].nbytes)
    return total


# Bytes and number of the strings of input i, which is spelled in JSON.
cdef int measure_texts(Draft draft, int i, uint64_t max_input_bytes) except -1:
    cdef TensorPlan *tensor = &draft.plan.tensors[i]
    cdef str name = name_of(draft.plan, tensor)
    cdef uint64_t elements
    measure_strings(<list>draft.values[tensor.position], &elements, &draft.inputs[i].nbytes, name)
    if draft.inputs[i].nbytes > max_input_bytes:
        raise refusals.json_input_too_large(name, draft.inputs[i].nbytes, max_input_bytes)
    return check_strings(draft.who(), name, draft.plan.model.name, elements, tensor.elements)


# Copies or decodes what does not stay, from `free` on in the extra block, and notes where each tensor lies.
cdef int place(
    Draft draft, InferInput request, Block body, uint64_t tail, uint64_t free, Regions regions) except -1:
    cdef InferPlan plan = draft.plan
    cdef TensorPlan *tensor
    cdef unsigned char *at
    cdef uint64_t nbytes
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        nbytes = draft.places[2 * i + 1] = draft.inputs[i].nbytes
        if stays(plan, tensor):
            if tensor.dtype == BYTES:
                walk_strings(draft, i, body.data + tail + tensor.offset)
            draft.places[2 * i] = body.offset + tail + tensor.offset
            continue
        if draft.inputs[i].referred:
            draft.places[2 * i] = 0  # the link says where, to each worker in its words
            continue
        if nbytes == 0:
            draft.places[2 * i] = body.offset if request.extra is None else request.extra.offset
            if tensor.dtype == BYTES:
                check_strings(draft.who(), name_of(plan, tensor), plan.model.name, 0, tensor.elements)
            continue
        at = request.extra.data + free
        draft.places[2 * i] = request.extra.offset + free
        free += align64(nbytes)
        if tensor.source == FROM_JSON:
            fill(draft, tensor, at)
        elif tensor.source == FROM_REGION:
            fetch(draft, i, regions, request, at)
        else:  # a raw string: its length goes in front
            (<uint32_t *>at)[0] = <uint32_t>(nbytes - 4)
            memcpy(at + 4, body.data + tail, nbytes - 4)
    return 0


cdef int fill(Draft draft, TensorPlan *tensor, unsigned char *at) except -1:
    if draft.spans != NULL:
        if not read_span(&draft.spans[tensor.position], tensor.dtype, at, tensor.elements):
            raise Unusual()
        return 0
    return fill_parsed(draft, tensor, at)


cdef int fill_parsed(Draft draft, TensorPlan *tensor, unsigned char *at) except -1:
    cdef list data = <list>draft.values[tensor.position]
    if tensor.dtype == BYTES:
        return fill_strings(data, &at)
    return fill_numbers(data, tensor.dtype, at, tensor.elements, name_of(draft.plan, tensor))


cdef int walk_strings(Draft draft, int i, const unsigned char *at) except -1:
    cdef TensorPlan *tensor = &draft.plan.tensors[i]
    return walk(
        at, draft.inputs[i].nbytes, tensor.elements, draft.who(), name_of(draft.plan, tensor), draft.plan.model.name)


def parse(
    ModelSignature model, Arena arena, bytes text, int64_t head_bytes=-1, *, uint64_t max_input_bytes=1 << 26,
    Regions regions=None, bytes forwarded=b"") -> InferInput:
    """Parse a body as though it had been received into a block of the arena."""
    cdef InferBody body = InferBody.__new__(InferBody)
    body.model, body.arena, body.regions, body.forwarded = model, arena, regions, forwarded
    body.nbytes, body.head_bytes, body.max_input_bytes = <uint64_t>len(text), head_bytes, max_input_bytes
    body.start = body_start(model.record_room, head_bytes)
    body.block = arena.take(body.start + body.nbytes)
    memcpy(body.block.data + body.start, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return read_infer(body)
