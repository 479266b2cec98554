"""An Answer becomes a ModelInferResponse, as pieces to gather.  Layer 2 (wire).

Large tensors stay where they lie, small ones are copied behind their heads.  What follows from the answer's signature
alone is encoded once per signature (record.AnswerLayout).  The room that a message needs is known before it is written:
the text buffer never moves under a piece.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from tisfast.wire.grpc.cursor cimport put_varint, varint_bytes
from tisfast.wire.grpc.encode cimport encoded_parameters, field, text_field, varint
from tisfast.wire.infer_plan cimport OutputChoice
from tisfast.wire.outputs cimport SpecialOutput, is_written, prepare
from tisfast.wire.record cimport Answer, AnswerLayout, InferInput, OutputRef
from tisfast.wire.signature cimport ModelSignature, TensorSpec
from tisfast.wire.text_buffer cimport TextBuffer

import json

from tisfast import tuning
from tisfast.errors import Internal
from tisfast.types import BY_CODE

cdef uint64_t COPIED_BYTES_MAX = tuning.GRPC_COPIED_OUTPUT_BYTES_MAX
cdef Py_ssize_t TEXT_BYTES_KEPT = tuning.GRPC_TEXT_BYTES_KEPT

cdef enum:
    FIELD_BYTES_MAX = 11        # a tag of one byte and a length
    WRAPPER_ROOM = 16           # for what a stream's message has in front of the response

cdef enum:                      # tags: field number << 3 | LEN
    ID_TAG = 3 << 3 | 2
    PARAMETERS_TAG = 4 << 3 | 2
    OUTPUTS_TAG = 5 << 3 | 2
    RAW_TAG = 6 << 3 | 2
    ERROR_TAG = 1 << 3 | 2
    RESPONSE_TAG = 2 << 3 | 2


cdef class GrpcBody:
    """See respond.pxd."""

    def __cinit__(self):
        self.text = TextBuffer(4096)

    def __dealloc__(self):
        PyMem_Free(self.pieces)

    cdef int add_piece(self, const unsigned char *data, uint64_t nbytes) except -1:
        cdef Piece *grown
        if nbytes == 0:
            return 0
        if self.count == self.room:
            grown = <Piece *>PyMem_Realloc(self.pieces, (self.room + 16) * sizeof(Piece))
            if grown == NULL:
                raise MemoryError()
            self.pieces = grown
            self.room += 16
        self.pieces[self.count].data = data
        self.pieces[self.count].nbytes = nbytes
        self.count += 1
        self.nbytes += nbytes
        return 0

    cdef int render(self, Answer answer, int mode, bint final) except -1:
        cdef InferInput request = answer.input
        cdef list heads = heads_of(answer)
        cdef list specials = None
        cdef bytes parameters = b""
        cdef unsigned char *start
        if (<OutputChoice>request.outputs).special:
            specials = special_outputs(answer)
            heads = special_heads(answer, heads, specials)
        if answer.parameters and answer.parameters != b"{}":
            parameters = response_parameters(answer.parameters)
        if mode == STREAMED:
            parameters = parameters + (FINAL if final else NOT_FINAL)
        start = put_head(self, request, parameters, measure(answer, heads, specials))
        put_outputs(self, answer, heads, specials, start)
        return self.wrap("") if mode == STREAMED else 0

    cdef int render_empty_final(self, InferInput request) except -1:
        cdef unsigned char *start = put_head(self, request, FINAL, 0)
        self.add_piece(start, <uint64_t>(self.text.data + self.text.used - start))
        return self.wrap("")

    cdef int render_stream_failure(self, str message, InferInput request, bint final) except -1:
        cdef unsigned char *start = put_head(self, request, FINAL if final else NOT_FINAL, 0)
        self.add_piece(start, <uint64_t>(self.text.data + self.text.used - start))
        return self.wrap(message)

    cdef int render_stream_error(self, str message, str id, str name, str version) except -1:
        cdef bytes response = text_field(1, name) + text_field(2, version) + text_field(3, id)
        begin(self, WRAPPER_ROOM + len(response))
        self.text.used = WRAPPER_ROOM
        self.text.put_bytes(response)
        self.add_piece(self.text.data + WRAPPER_ROOM, len(response))
        return self.wrap(message)

    # Puts what makes it a ModelStreamInferResponse around the response that was rendered.
    cdef int wrap(self, str error) except -1:
        cdef unsigned char header[WRAPPER_ROOM]
        cdef unsigned char *end
        cdef bytes front
        cdef uint64_t n
        header[0] = RESPONSE_TAG
        end = put_varint(header + 1, self.nbytes)
        n = <uint64_t>(end - header)
        if self.count:  # its first piece is in the text, with room in front of it
            memcpy(<unsigned char *>self.pieces[0].data - n, header, n)
            self.pieces[0].data -= n
            self.pieces[0].nbytes += n
            self.nbytes += n
        else:
            self.text.used = 0
            self.text.put(header, <Py_ssize_t>n)
            self.add_piece(self.text.data, n)
        if not error:
            return 0
        # Errors are small: one piece, put together anew.
        front = text_field(1, error) + PyBytes_FromStringAndSize(
            <const char *>self.pieces[0].data, <Py_ssize_t>self.pieces[0].nbytes)
        begin(self, len(front))
        self.text.put_bytes(front)
        return self.add_piece(self.text.data, len(front))


cdef uint64_t written_bytes(Answer answer, bint coded) except? 0xFFFFFFFFFFFFFFFF:
    cdef OutputChoice choice = <OutputChoice>answer.input.outputs
    cdef OutputRef *out
    cdef uint64_t total = 0
    cdef int i
    if not coded and not choice.special:
        return 0
    for i in range(answer.count):
        out = &answer.outputs[i]
        if answer.input.requested >> out.index & 1 and (coded or choice.special >> out.index & 1) and (
                not is_written(answer, out)):
            total += out.nbytes
    return total


cdef int begin(GrpcBody body, Py_ssize_t room) except -1:
    body.count = 0
    body.nbytes = 0
    body.text.reset(max(TEXT_BYTES_KEPT, room))
    body.text.room(room)
    return 0


# Bytes of text that the outputs need.
cdef uint64_t measure(Answer answer, list heads, list specials) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t total = 0
    cdef OutputRef *out
    cdef int i
    for i in range(answer.count):
        out = &answer.outputs[i]
        if not answer.input.requested >> out.index & 1:
            continue
        total += <uint64_t>PyBytes_GET_SIZE(<bytes>heads[i]) + FIELD_BYTES_MAX
        if out.nbytes <= COPIED_BYTES_MAX:
            total += COPIED_BYTES_MAX
        elif specials is not None:  # its classes may be few
            total += COPIED_BYTES_MAX
    return total


# Name, version, id and parameters, with room for `more` behind them; returns where they start.
cdef unsigned char *put_head(GrpcBody body, InferInput request, bytes parameters, uint64_t more) except NULL:
    cdef TextBuffer text = body.text
    cdef Py_ssize_t id_bytes = 0
    cdef const char *id_text = PyUnicode_AsUTF8AndSize(request.id, &id_bytes)
    cdef bytes head = request.model.head_message
    cdef unsigned char *at
    begin(body, WRAPPER_ROOM + PyBytes_GET_SIZE(head) + FIELD_BYTES_MAX + id_bytes + PyBytes_GET_SIZE(parameters) + more)
    at = put_bytes(text.data + WRAPPER_ROOM, head)
    if id_bytes:
        at = put_field(at, ID_TAG, <const unsigned char *>id_text, <uint64_t>id_bytes)
    at = put_bytes(at, parameters)
    text.used = at - text.data
    return text.data + WRAPPER_ROOM


cdef inline unsigned char *put_bytes(unsigned char *at, bytes data) noexcept:
    memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return at + PyBytes_GET_SIZE(data)


cdef inline unsigned char *put_field(
    unsigned char *at, unsigned char tag, const unsigned char *data, uint64_t nbytes) noexcept:
    at[0] = tag
    at = put_varint(at + 1, nbytes)
    memcpy(at, data, nbytes)
    return at + nbytes


# Heads of all outputs, then the tensors.  start: of the message's text so far.
cdef int put_outputs(GrpcBody body, Answer answer, list heads, list specials, unsigned char *start) except -1:
    cdef unsigned char *at = body.text.data + body.text.used
    cdef const unsigned char *data
    cdef uint64_t nbytes
    cdef OutputRef *out
    cdef int i
    for i in range(answer.count):
        if answer.input.requested >> answer.outputs[i].index & 1:
            at = put_bytes(at, <bytes>heads[i])
    for i in range(answer.count):
        out = &answer.outputs[i]
        if not answer.input.requested >> out.index & 1:
            continue
        data = out.data
        nbytes = out.nbytes
        if specials is not None and specials[i] is not None:
            data = special_data(<SpecialOutput>specials[i], &nbytes)
        if nbytes <= COPIED_BYTES_MAX:
            at = put_field(at, RAW_TAG, data, nbytes)
            continue
        at[0] = RAW_TAG
        at = put_varint(at + 1, nbytes)
        body.add_piece(start, <uint64_t>(at - start))
        body.add_piece(data, nbytes)
        start = at
    body.text.used = at - body.text.data
    return body.add_piece(start, <uint64_t>(at - start))


# ---- outputs that are not given as their tensors

# Per output: what stands for it, or None.
cdef list special_outputs(Answer answer):
    cdef OutputChoice choice = <OutputChoice>answer.input.outputs
    cdef list specials = [None] * answer.count
    cdef int i
    for i in range(answer.count):
        if choice.special >> answer.outputs[i].index & 1 and answer.input.requested >> answer.outputs[i].index & 1:
            specials[i] = prepare(answer, &answer.outputs[i])
    return specials


cdef list special_heads(Answer answer, list heads, list specials):
    cdef SpecialOutput special
    cdef str name
    cdef int i
    heads = list(heads)
    for i in range(answer.count):
        special = specials[i]
        if special is None:
            continue
        name = (<TensorSpec>answer.input.model.outputs[answer.outputs[i].index]).name
        if special.region is None:
            heads[i] = output_head(name, "BYTES", special.shape, b"")
        else:
            heads[i] = tensor_head(answer, i, region_parameters(special))
    return heads


cdef bytes tensor_head(Answer answer, int i, bytes parameters):
    cdef OutputRef *out = &answer.outputs[i]
    cdef TensorSpec spec = <TensorSpec>answer.input.model.outputs[out.index]
    cdef int k
    shape = tuple([out.shape[k] for k in range(out.rank)])
    return output_head(spec.name, BY_CODE[out.dtype].wire, shape, parameters)


cdef bytes region_parameters(SpecialOutput special):
    values = {"shared_memory_region": special.region, "shared_memory_byte_size": special.nbytes}
    if special.offset:
        values["shared_memory_offset"] = special.offset
    return encoded_parameters(4, values)


# In a region: nothing is left to send, from somewhere all the same, as memcpy takes no null pointer.
cdef const unsigned char *special_data(SpecialOutput special, uint64_t *nbytes) noexcept:
    if special.region is not None:
        nbytes[0] = 0
        return <const unsigned char *>b""
    nbytes[0] = <uint64_t>PyBytes_GET_SIZE(special.strings)
    return <const unsigned char *>PyBytes_AS_STRING(special.strings)


# A model sets them, to what JSON can say; maps have one number, 4, in both the response and its outputs.  Raises Internal for what gRPC cannot.
cdef bytes response_parameters(bytes text):
    try:
        return encoded_parameters(4, json.loads(text))
    except (ValueError, RecursionError) as error:  # as a number of thousands of digits
        raise Internal(f"response parameters cannot be sent: {error}") from None


cdef bytes output_head(str name, str datatype, tuple shape, bytes parameters):
    dims = b"".join([varint(dim) for dim in shape])
    packed = field(3, dims) if shape else b""
    return field(5, text_field(1, name) + text_field(2, datatype) + packed + parameters)


cdef list heads_of(Answer answer):
    cdef AnswerLayout layout = answer.layout
    cdef int i
    if layout.heads_message is None:
        layout.heads_message = [tensor_head(answer, i, b"") for i in range(answer.count)]
    return layout.heads_message


cdef bytes FINAL = encoded_parameters(4, {"triton_final_response": True})
cdef bytes NOT_FINAL = encoded_parameters(4, {"triton_final_response": False})


# ---- for tests

cdef bytes whole(GrpcBody body):
    cdef int i
    return b"".join([(<char *>body.pieces[i].data)[:body.pieces[i].nbytes] for i in range(body.count)])


def render(Answer answer, int mode=UNARY, *, bint final=True, GrpcBody body=None) -> bytes:
    """The message of an answer."""
    body = body or GrpcBody()
    body.render(answer, mode, final)
    return whole(body)


def render_empty_final(InferInput request) -> bytes:
    """The message that ends a request without a further answer."""
    cdef GrpcBody body = GrpcBody()
    body.render_empty_final(request)
    return whole(body)


def render_stream_error(str message, str id, str name="", str version="") -> bytes:
    """The message that refuses a request of a stream."""
    cdef GrpcBody body = GrpcBody()
    body.render_stream_error(message, id, name, version)
    return whole(body)


def render_stream_failure(str message, InferInput request, *, bint final=True) -> bytes:
    """The message of a request of a stream that failed with its model."""
    cdef GrpcBody body = GrpcBody()
    body.render_stream_failure(message, request, final)
    return whole(body)
