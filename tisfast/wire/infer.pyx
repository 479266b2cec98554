"""An inference body becomes an InferInput: find or make the plan, place the tensors, write the record.  Layer 2 (wire).

A head whose tensors are all binary or in regions is remembered with its plan (bounded by limits.HEAD_CACHE_*).  Clients number their
requests, and put the id first: so a head that starts with {"id":"…" is remembered without that id, and a stream of
numbered requests is one entry.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from tisfast.native.memory cimport Arena, Block
from tisfast.native.region cimport Region, Regions, SystemRegion
from tisfast.wire.json_data cimport binary_head, fill_numbers, fill_strings, load_json, measure_strings
from tisfast.wire.plan cimport FROM_BINARY, FROM_JSON, FROM_REGION, InferPlan, OutputChoice, TensorPlan, find
from tisfast.wire.record cimport InferInput
from tisfast.wire.request cimport parse_plan, raw_plan
from tisfast.wire.spelled cimport SPANS_MAX, Span, elided, find_spans, is_spelled, read_span
from tisfast.wire.signature cimport BYTES, ModelSignature, TensorSpec
from tisfast.wire.tensors cimport Tensor, by_reference, new_foreign, new_tensor

from tisfast import limits
from tisfast.errors import BadRequest, Internal



class Unusual(Exception):
    """A number that is left to the parser."""


cdef uint64_t CACHED_HEAD_BYTES_MAX = limits.HEAD_CACHE_BYTES_MAX
cdef Py_ssize_t CACHED_HEADS_MAX = limits.HEAD_CACHE_ENTRIES_MAX
cdef Py_ssize_t FOREIGN_INPUTS_MAX = limits.FOREIGN_INPUTS_MAX
cdef uint64_t ID_BYTES_MAX = limits.REQUEST_ID_BYTES_MAX
cdef const char *ID_START = b'{"id":'


cdef InferInput read_infer(
    ModelSignature model, Arena arena, Block body, uint64_t start, uint64_t nbytes, int64_t head_bytes,
    uint64_t max_input_bytes, Regions regions, bytes forwarded):
    cdef InferPlan plan
    cdef const unsigned char *data = body.data + start
    cdef uint64_t json_bytes = nbytes if head_bytes < 0 else <uint64_t>head_bytes
    if json_bytes > nbytes:
        raise BadRequest(f"inference header size should be in range (0, {nbytes}), got: {head_bytes}")
    if json_bytes == 0:
        plan = raw_plan(model, nbytes, max_input_bytes, forwarded)
    else:
        if json_bytes > max_input_bytes:
            raise BadRequest(
                f"request JSON size of {json_bytes} bytes exceeds the maximum allowed input size of {max_input_bytes} "
                "bytes. Use --http-max-input-size to increase the limit.")
        if (head_bytes <= 0 and not model.region_heads) or json_bytes > CACHED_HEAD_BYTES_MAX:
            return read_text(model, arena, body, start, json_bytes, nbytes, max_input_bytes, regions, forwarded)
        plan = remembered_plan(model, data, json_bytes, nbytes - json_bytes, max_input_bytes, regions, forwarded)
    return assemble(plan, arena, body, start, start + json_bytes, max_input_bytes, regions)


# A request whose tensors are spelled out in its JSON, or whose head is too long to be remembered.
cdef InferInput read_text(
    ModelSignature model, Arena arena, Block body, uint64_t start, uint64_t json_bytes, uint64_t nbytes,
    uint64_t max_input_bytes, Regions regions, bytes forwarded):
    cdef const unsigned char *data = body.data + start
    cdef Span spans[SPANS_MAX]
    cdef int count = find_spans(data, json_bytes, spans) if nbytes == json_bytes else 0
    cdef uint64_t begin = 0, skip = leading_id(data, json_bytes, &begin)
    cdef bytes key = elided(data, json_bytes, skip, spans, count, CACHED_HEAD_BYTES_MAX) if count else None
    cdef InferPlan plan = None
    if key is not None and forwarded:
        key += forwarded
    if key is not None and skip <= ID_BYTES_MAX + begin + 1:
        plan = model.heads.get(key)
    if plan is not None:
        if skip:
            plan.id = PyUnicode_DecodeASCII(<char *>data + begin, skip - begin - 1, NULL)
        plan.spans = spans
        try:
            return assemble(plan, arena, body, start, nbytes, max_input_bytes, regions)
        except Unusual:
            pass  # the parser below knows what it is
        finally:
            plan.spans = NULL
    plan = read_plan(model, data, json_bytes, nbytes - json_bytes, max_input_bytes, regions, forwarded)
    model.region_heads = plan.regional and plan.all_binary
    request = assemble(plan, arena, body, start, start + json_bytes, max_input_bytes, regions)
    # With an escape in it, a text may hold a "data" that is spelled otherwise.
    if key is not None and is_all_spelled(plan, count) and b"\\" not in key and not (skip and b'"id"' in key):
        plan.data = None
        remember(model, key, plan)
    return request


cdef InferPlan read_plan(
    ModelSignature model, const unsigned char *data, uint64_t json_bytes, uint64_t binary_bytes,
    uint64_t max_input_bytes, Regions regions, bytes forwarded):
    try:
        doc = load_json(data, json_bytes)
    except Internal:
        # Tensors behind the JSON whose beginning nobody told, or told wrongly: the request is at fault, and hears how.
        doc = binary_head(data, json_bytes)
        if doc is not None:
            parse_plan(model, doc, binary_bytes, max_input_bytes, regions, forwarded)
        raise
    return parse_plan(model, doc, binary_bytes, max_input_bytes, regions, forwarded)


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


# Bytes of a leading {"id":"…" whose text needs no decoding, else 0.  begin: where the text starts.
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


cdef InferPlan remembered_plan(
    ModelSignature model, const unsigned char *data, uint64_t head_bytes, uint64_t binary_bytes,
    uint64_t max_input_bytes, Regions regions, bytes forwarded):
    cdef uint64_t begin = 0
    cdef uint64_t skip = leading_id(data, head_bytes, &begin)
    cdef bytes key = PyBytes_FromStringAndSize(<char *>data + skip, head_bytes - skip)
    cdef InferPlan plan
    if forwarded:
        key += forwarded  # behind a whole JSON object: no other head has this key
    plan = model.heads.get(key)
    if plan is not None and plan.binary_bytes == binary_bytes and skip <= ID_BYTES_MAX + begin + 1:
        if skip:
            plan.id = PyUnicode_DecodeASCII(<char *>data + begin, skip - begin - 1, NULL)
        return plan
    plan = read_plan(model, data, head_bytes, binary_bytes, max_input_bytes, regions, forwarded)
    # A second "id" further on would win over the leading one, so such a head is not remembered.
    if plan.all_binary and not (skip and b'"id"' in key):
        remember(model, key, plan)
        if not plan.regional:
            plan.data = None
    return plan


cdef inline uint64_t align64(uint64_t n) noexcept:
    return (n + 63) & ~<uint64_t>63


cdef InferInput assemble(
    InferPlan plan, Arena arena, Block body, uint64_t start, uint64_t tail, uint64_t max_input_bytes, Regions regions):
    cdef InferInput request = new_request(plan, regions)
    cdef Py_ssize_t id_bytes
    cdef const char *id_text = PyUnicode_AsUTF8AndSize(plan.id, &id_bytes)
    cdef uint64_t tensors = measure(plan, max_input_bytes)
    cdef uint64_t record_bytes = plan.template.nbytes(id_bytes)
    cdef uint64_t need = align64(record_bytes) + tensors
    cdef uint64_t free = align64(record_bytes)
    cdef Block home = body       # of the record
    request.record_bytes = <uint32_t>record_bytes
    if plan.stays:
        request.body = body
        if record_bytes > start:
            home = request.extra = arena.take(need)
        elif tensors:
            request.extra = arena.take(tensors)
            free = 0
    elif plan.binary_bytes or plan.spans != NULL or need > body.nbytes:
        home = request.extra = arena.take(need)
    else:
        request.extra = body     # its JSON has become Python values
    place(plan, request, body, tail, free, regions)
    request.record_offset = home.offset
    plan.template.write(home.data, plan.places, id_text, <uint32_t>id_bytes)
    if request.foreign is not None:
        request.set_foreign(plan.template, request.foreign)
    return request


cdef InferInput new_request(InferPlan plan, Regions regions):
    cdef InferInput request = InferInput.__new__(InferInput)
    request.model = plan.model
    request.id = plan.id
    request.batch = plan.batch
    request.priority = plan.priority
    request.timeout_us = plan.timeout_us
    request.correlation = plan.correlation
    request.sequence_flags = plan.flags
    request.requested = plan.requested
    request.shape_key = plan.shape_key
    if plan.regional:
        look_at_regions(plan, request, regions)
    request.outputs = plan.outputs
    if plan.outputs.in_regions:
        request.outputs = plan.outputs.bind(regions)
        request.shared_outputs = (<OutputChoice>request.outputs).shared
    return request


# Before anything is reserved for them: checks the bounds, and decides what stays where it is.
cdef int look_at_regions(InferPlan plan, InferInput request, Regions regions) except -1:
    cdef TensorPlan *tensor
    cdef Region region
    cdef list foreign = []
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if tensor.source != FROM_REGION:
            continue
        region = find(regions, <str>plan.data[tensor.position])
        region.check(tensor.offset, tensor.nbytes)
        tensor.referred = region.device < 0 and len(foreign) < FOREIGN_INPUTS_MAX and by_reference(
            plan.model, tensor.dtype, (<SystemRegion>region).file, region.offset + tensor.offset, tensor.nbytes)
        if tensor.referred:
            foreign.append(new_foreign(in_place(plan, tensor, <SystemRegion>region), <uint32_t>i))
    if foreign:
        request.foreign = foreign  # the record learns of it when it is written
    return 0


# Its file is looked at now, as it would be for a copy; what happens to it later is caught where it is read.
cdef Tensor in_place(InferPlan plan, TensorPlan *tensor, SystemRegion region):
    cdef uint64_t offset = region.offset + tensor.offset
    cdef int i
    region.file.check_size(offset + tensor.nbytes)
    shape = tuple([tensor.shape[i] for i in range(tensor.rank)])
    name = (<TensorSpec>plan.model.inputs[tensor.index]).name
    return new_tensor(name, tensor.dtype, shape, region.file, offset, tensor.nbytes, region)


cdef int fetch(InferPlan plan, TensorPlan *tensor, Regions regions, unsigned char *at) except -1:
    find(regions, <str>plan.data[tensor.position]).read(tensor.offset, at, tensor.nbytes)
    return walk_strings(plan, tensor, at) if tensor.dtype == BYTES else 0


# True when the tensor's bytes are used where they were received.
cdef inline bint stays(InferPlan plan, TensorPlan *tensor) noexcept:
    return plan.stays and tensor.source == FROM_BINARY


# Bytes needed for tensors that must be written elsewhere, each rounded up to 64.
cdef uint64_t measure(InferPlan plan, uint64_t max_input_bytes) except? 0xFFFFFFFFFFFFFFFF:
    cdef TensorPlan *tensor
    cdef uint64_t elements, total = 0
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        if tensor.source == FROM_JSON and tensor.dtype == BYTES:
            name = (<TensorSpec>plan.model.inputs[tensor.index]).name
            measure_strings(<list>plan.data[tensor.position], &elements, &tensor.nbytes, name)
            if tensor.nbytes > max_input_bytes:
                raise BadRequest(
                    f"JSON input '{name}' has a byte_size ({tensor.nbytes} bytes) that exceeds the maximum allowed value "
                    f"of {max_input_bytes} bytes. Use --http-max-input-size to increase the limit.")
            check_strings(plan, name, elements, tensor.elements)
        if not stays(plan, tensor) and not tensor.referred:
            total += align64(tensor.nbytes)
    return total


cdef int check_strings(InferPlan plan, str name, uint64_t got, uint64_t expected) except -1:
    if got > expected:
        raise BadRequest(
            f"{plan.who()}unexpected number of string elements {expected + 1} for inference input '{name}' for model "
            f"'{plan.model.name}', expecting {expected}")
    if got < expected:
        raise BadRequest(
            f"{plan.who()}expected {expected} string elements for inference input '{name}' for model "
            f"'{plan.model.name}', got {got}")
    return 0


# Copies or decodes what does not stay, from `free` on in the extra block, and notes where each tensor lies.
cdef int place(
    InferPlan plan, InferInput request, Block body, uint64_t tail, uint64_t free, Regions regions) except -1:
    cdef TensorPlan *tensor
    cdef unsigned char *at
    cdef int i
    for i in range(plan.count):
        tensor = &plan.tensors[i]
        plan.places[2 * i + 1] = tensor.nbytes
        if stays(plan, tensor):
            if tensor.dtype == BYTES:
                walk_strings(plan, tensor, body.data + tail + tensor.offset)
            plan.places[2 * i] = body.offset + tail + tensor.offset
            continue
        if tensor.referred:
            plan.places[2 * i] = 0  # the link says where, to each worker in its words
            continue
        if tensor.nbytes == 0:
            plan.places[2 * i] = body.offset if request.extra is None else request.extra.offset
            if tensor.dtype == BYTES:
                check_strings(plan, (<TensorSpec>plan.model.inputs[tensor.index]).name, 0, tensor.elements)
            continue
        at = request.extra.data + free
        plan.places[2 * i] = request.extra.offset + free
        free += align64(tensor.nbytes)
        if tensor.source == FROM_JSON:
            fill(plan, tensor, at)
        elif tensor.source == FROM_REGION:
            fetch(plan, tensor, regions, at)
        else:  # a raw string: its length goes in front
            (<uint32_t *>at)[0] = <uint32_t>(tensor.nbytes - 4)
            memcpy(at + 4, body.data + tail, tensor.nbytes - 4)
    return 0


cdef int fill(InferPlan plan, TensorPlan *tensor, unsigned char *at) except -1:
    if plan.spans != NULL:
        if not read_span(&plan.spans[tensor.position], tensor.dtype, at, tensor.elements):
            raise Unusual()
        return 0
    return fill_parsed(plan, tensor, at)


cdef int fill_parsed(InferPlan plan, TensorPlan *tensor, unsigned char *at) except -1:
    cdef list data = <list>plan.data[tensor.position]
    if tensor.dtype == BYTES:
        return fill_strings(data, &at)
    name = (<TensorSpec>plan.model.inputs[tensor.index]).name
    return fill_numbers(data, tensor.dtype, at, tensor.elements, name)


# Counts and lengths inside a BYTES tensor (row 15.55).
cdef int walk_strings(InferPlan plan, TensorPlan *tensor, const unsigned char *at) except -1:
    cdef uint64_t left = tensor.nbytes, got = 0
    cdef uint32_t length
    name = (<TensorSpec>plan.model.inputs[tensor.index]).name
    while left:
        if left < 4:
            raise BadRequest(
                f"{plan.who()}incomplete string length indicator for inference input '{name}' for model "
                f"'{plan.model.name}', expecting 4 bytes but only {left} bytes available. Please make sure the string "
                "length indicator is in one buffer.")
        memcpy(&length, at, 4)
        at += 4
        left -= 4
        got += 1
        if got > tensor.elements:
            break
        if length > left:
            # Triton counts first: too few elements is the better news of the two.
            check_strings(plan, name, got, tensor.elements)
            raise BadRequest(
                f"incomplete string data for inference input '{name}', expecting string of length {length} "
                f"but only {left} bytes available")
        at += length
        left -= length
    return check_strings(plan, name, got, tensor.elements)


def parse(
    ModelSignature model, Arena arena, bytes body, int64_t head_bytes=-1, *, uint64_t max_input_bytes=1 << 26,
    Regions regions=None, bytes forwarded=b"") -> InferInput:
    """Parse a body as though it had been received into a block of the arena."""
    cdef uint64_t start = body_start(model.record_room, head_bytes)
    cdef Block block = arena.take(start + <uint64_t>len(body))
    memcpy(block.data + start, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    return read_infer(
        model, arena, block, start, PyBytes_GET_SIZE(body), head_bytes, max_input_bytes, regions, forwarded)
