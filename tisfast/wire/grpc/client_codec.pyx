"""ModelInferRequest as a client writes it, ModelInferResponse as it reads it; see client_codec.pxd.  Layer 2 (wire).

Fields are written in the order of their numbers, raw tensors last: so servers see the model's name first, and remember all in
front of the tensors but the id.  Large tensors are not copied, in either direction.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.wire.grpc.contents cimport Contents, measure_contents
from tisfast.wire.grpc.cursor cimport FIELD, LEN, NO_FIELD, VARINT, Cursor, Field, cursor, next_field, put_varint, take_varint, varint_bytes
from tisfast.wire.grpc.encode cimport encoded_parameters, field, text_field
from tisfast.wire.grpc.values cimport Parameter, take_parameter, text_of
from tisfast.wire.signature cimport BF16, BOOL, BYTES, FP16, FP32, FP64, INT16, INT32, INT64, INT8, UINT16, UINT32, UINT64, UINT8

from tisfast import limits, tuning
from tisfast.errors import BadRequest, BadResponse, TisError
from tisfast.types import BY_WIRE

cdef uint64_t COPIED_BYTES_MAX = tuning.GRPC_COPIED_OUTPUT_BYTES_MAX
cdef Py_ssize_t TEXT_BYTES_KEPT = tuning.CLIENT_TEXT_BYTES_KEPT
cdef Py_ssize_t OUTPUTS_MAX = limits.CLIENT_OUTPUTS_MAX
cdef Py_ssize_t RANK_MAX = limits.TENSOR_RANK_MAX
cdef WantedOutputs ALL_OUTPUTS = WantedOutputs()
cdef str FINAL = "triton_final_response"

cdef enum:                      # tags: field number << 3 | LEN
    RAW_INPUT_TAG = 7 << 3 | 2
    INPUT_TAG = 5 << 3 | 2
    FIELD_BYTES_MAX = 11        # a tag of one byte and a length

# Of InferTensorContents.
cdef dict CONTENTS_FIELD = {BOOL: 1, INT8: 2, INT16: 2, INT32: 2, INT64: 3, UINT8: 4, UINT16: 4, UINT32: 4, UINT64: 5, FP32: 6, FP64: 7, BYTES: 8}


# ---- requests

cdef class RequestMessage:
    """See client_codec.pxd."""

    def __cinit__(self):
        self.text = TextBuffer()

    cdef list write(
            self, str model, str version, list inputs, WantedOutputs outputs, dict parameters, str id, bint raw):
        cdef TextBuffer text = self.text
        cdef BufferTensor tensor
        self.parts = []
        text.reset(TEXT_BYTES_KEPT)
        put_text(text, 1, model)
        put_text(text, 2, version)
        put_text(text, 3, id)
        if parameters:
            text.put_bytes(encoded_parameters(4, request_parameters(parameters)))
        for tensor in inputs:
            put_input(text, tensor, raw)
        text.put_bytes(outputs.message)
        if raw:
            for tensor in inputs:
                if tensor.region is None:
                    self._raw(tensor)
        self.parts.append(text.value())
        text.reset(TEXT_BYTES_KEPT)
        parts, self.parts = self.parts, None  # the caller's tensors are not this object's to keep
        return parts

    cdef int _raw(self, BufferTensor tensor) except -1:
        cdef TextBuffer text = self.text
        cdef unsigned char *at
        if tensor.nbytes <= COPIED_BYTES_MAX:
            return put_field(text, RAW_INPUT_TAG, tensor.data, tensor.nbytes)
        at = text.room(FIELD_BYTES_MAX)
        at[0] = RAW_INPUT_TAG
        text.used += put_varint(at + 1, tensor.nbytes) - at
        self.parts.append(text.value())
        self.parts.append(tensor)
        return text.reset(TEXT_BYTES_KEPT)

    def render(
            self, str model, list inputs, *, str version="", WantedOutputs outputs=None, dict parameters=None, str id="",
            bint raw=True) -> list:
        """A ModelInferRequest, in pieces: bytes, and BufferTensors where they lie (GrpcClientSession.send takes both).

        raw: tensors as raw_input_contents, else as typed contents.  parameters: as RequestBody.render has them.
        """
        return self.write(model, version, inputs, ALL_OUTPUTS if outputs is None else outputs, parameters, id, raw)


cdef inline int put_field(TextBuffer text, unsigned char tag, const unsigned char *data, uint64_t nbytes) except -1:
    cdef unsigned char *start = text.room(<Py_ssize_t>nbytes + FIELD_BYTES_MAX)
    cdef unsigned char *at
    start[0] = tag
    at = put_varint(start + 1, nbytes)
    if nbytes:
        memcpy(at, data, nbytes)
    text.used += at + nbytes - start
    return 0


# proto3 leaves out what is empty.
cdef int put_text(TextBuffer text, int number, str value) except -1:
    cdef Py_ssize_t n
    cdef const char *data
    if not value:
        return 0
    try:
        data = PyUnicode_AsUTF8AndSize(value, &n)
    except UnicodeEncodeError as error:
        raise BadRequest(f"{value!r:.100} is no text: {error}") from None
    return put_field(text, <unsigned char>(number << 3 | 2), <const unsigned char *>data, <uint64_t>n)


cdef int put_input(TextBuffer text, BufferTensor tensor, bint raw) except -1:
    cdef Py_ssize_t name_bytes, datatype_bytes
    cdef const char *name = PyUnicode_AsUTF8AndSize(tensor.name, &name_bytes)
    cdef const char *datatype = PyUnicode_AsUTF8AndSize(tensor.datatype, &datatype_bytes)
    cdef uint64_t dims_bytes = 0, n
    cdef bytes more = b""
    cdef unsigned char *at
    cdef int64_t dim
    if tensor.region is not None:
        more = encoded_parameters(4, region_parameters(tensor))
    elif not raw and tensor.elements:
        more = field(5, contents(tensor))
    for dim in tensor.shape:
        dims_bytes += <uint64_t>varint_bytes(<uint64_t>dim)
    n = 1 + <uint64_t>(varint_bytes(<uint64_t>name_bytes) + name_bytes) if name_bytes else 0
    n += 1 + <uint64_t>(varint_bytes(<uint64_t>datatype_bytes) + datatype_bytes) + <uint64_t>PyBytes_GET_SIZE(more)
    if dims_bytes:
        n += 1 + <uint64_t>varint_bytes(dims_bytes) + dims_bytes
    at = text.room(FIELD_BYTES_MAX)
    at[0] = INPUT_TAG
    text.used += put_varint(at + 1, n) - at
    if name_bytes:
        put_field(text, 1 << 3 | 2, <const unsigned char *>name, <uint64_t>name_bytes)
    put_field(text, 2 << 3 | 2, <const unsigned char *>datatype, <uint64_t>datatype_bytes)
    if dims_bytes:
        at = text.room(<Py_ssize_t>dims_bytes + FIELD_BYTES_MAX)
        at[0] = 3 << 3 | 2
        text.used += 1
        at = put_varint(at + 1, dims_bytes)
        for dim in tensor.shape:
            at = put_varint(at, <uint64_t>dim)
        text.used = at - text.data
    return text.put_bytes(more)


cdef dict region_parameters(BufferTensor tensor):
    values = {"shared_memory_region": tensor.region, "shared_memory_byte_size": tensor.nbytes}
    if tensor.offset:
        values["shared_memory_offset"] = tensor.offset
    return values


cdef dict request_parameters(dict parameters):
    """Parameters in gRPC's form: a sequence id is a signed number there, whose bits count."""
    cdef dict values = dict(parameters)
    for name, value in values.items():
        if type(value) not in (bool, int, str, float) or type(value) is int and not -(1 << 63) <= value < 1 << 64:
            raise BadRequest(f"request parameter '{name:.100}' is {value!r:.60}; it must be bool, str, float, or an int of 64 bits")
    id = values.get("sequence_id")
    if type(id) is int and id >= 1 << 63:
        values["sequence_id"] = id - (1 << 64)
    return values


cdef bytes contents(BufferTensor tensor):
    """An InferTensorContents of its elements."""
    cdef int number
    if tensor.dtype == FP16 or tensor.dtype == BF16:
        raise BadRequest(f"input '{tensor.name}' of {tensor.datatype} has no typed contents; send it raw")
    number = CONTENTS_FIELD[tensor.dtype]
    if tensor.dtype == BYTES:
        return b"".join([field(number, element) for element in tensor.strings()])
    if tensor.dtype == FP32 or tensor.dtype == FP64:
        return field(number, tensor.data[:tensor.nbytes])
    return field(number, varints(tensor))


cdef bytes varints(BufferTensor tensor):
    cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(10 * tensor.elements))
    cdef unsigned char *start = <unsigned char *>PyBytes_AS_STRING(out)
    cdef unsigned char *at = start
    cdef uint64_t i
    for i in range(tensor.elements):
        at = put_varint(at, whole_at(tensor.data, tensor.dtype, i))
    return out[:at - start]


# Element i as 64 bits: int32 and int64 fields carry negative numbers in all of them.
cdef uint64_t whole_at(const unsigned char *data, int dtype, uint64_t i) noexcept:
    cdef int16_t i16
    cdef int32_t i32
    cdef uint16_t u16
    cdef uint32_t u32
    cdef uint64_t u64
    if dtype == BOOL:
        return data[i] != 0
    if dtype == UINT8:
        return data[i]
    if dtype == INT8:
        return <uint64_t><int64_t><int8_t>data[i]
    if dtype == INT16:
        memcpy(&i16, data + 2 * i, 2)
        return <uint64_t><int64_t>i16
    if dtype == UINT16:
        memcpy(&u16, data + 2 * i, 2)
        return u16
    if dtype == INT32:
        memcpy(&i32, data + 4 * i, 4)
        return <uint64_t><int64_t>i32
    if dtype == UINT32:
        memcpy(&u32, data + 4 * i, 4)
        return u32
    memcpy(&u64, data + 8 * i, 8)
    return u64


# ---- responses

cdef class OutputMessage:
    """One InferOutputTensor."""
    cdef const unsigned char *data
    cdef uint64_t nbytes
    cdef str name, datatype
    cdef list shape
    cdef dict parameters
    cdef bint has_contents


cdef broken():
    return BadResponse("the server's message is no ModelInferResponse")


cdef InferResponse read_response(bytes message, uint64_t begin, uint64_t end):
    try:
        return parsed(message, begin, end)
    except BadResponse:
        raise
    except TisError as error:  # of what requests and responses have in common
        raise BadResponse(f"the server's message cannot be read: {error.message}") from None


cdef InferResponse parsed(bytes message, uint64_t begin, uint64_t end):
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(message)
    cdef InferResponse response = InferResponse.__new__(InferResponse)
    cdef Cursor c = cursor(data + begin, end - begin)
    cdef dict parameters = {}
    cdef list outputs = [], raws = []
    cdef Field found
    cdef int state
    response.model = ""
    while True:
        state = next_field(&c, &found)
        if state != FIELD:
            break
        if found.kind != LEN:
            continue
        if found.number == 1:
            response.model = text_of(&found)
        elif found.number == 2:
            response.version = text_of(&found)
        elif found.number == 3:
            response.id = text_of(&found)
        elif found.number == 4:
            take_parameter(&found, parameters)
        elif found.number == 5:
            outputs.append(read_output(&found))
        elif found.number == 6:
            raws.append((found.data - data, found.nbytes))
        if len(outputs) > OUTPUTS_MAX or len(raws) > OUTPUTS_MAX:
            raise BadResponse(f"the response has more than {OUTPUTS_MAX} outputs")
    if state != NO_FIELD:
        raise broken()
    response.parameters = {name: (<Parameter>value).value for name, value in parameters.items()}
    response.final = bool(response.parameters.get(FINAL, True))
    if len(raws) > len(outputs):
        raise BadResponse(f"the response has {len(raws)} raw contents for {len(outputs)} outputs")
    for i in range(len(outputs)):
        response.outputs.append(tensor_of(message, <OutputMessage>outputs[i], raws[i] if i < len(raws) else None))
    return response


cdef OutputMessage read_output(const Field *message):
    cdef OutputMessage output = OutputMessage.__new__(OutputMessage)
    cdef Cursor c = cursor(message.data, message.nbytes)
    cdef Cursor dims
    cdef uint64_t dim = 0
    cdef Field found
    cdef int state
    output.data, output.nbytes = message.data, message.nbytes
    output.name = output.datatype = ""
    output.shape, output.parameters = [], {}
    while True:
        state = next_field(&c, &found)
        if state != FIELD:
            break
        if found.number == 3 and found.kind == VARINT:
            output.shape.append(<int64_t>found.value)
        elif found.number == 3 and found.kind == LEN:
            dims = cursor(found.data, found.nbytes)
            while dims.at < dims.end and len(output.shape) <= RANK_MAX:
                if not take_varint(&dims, &dim):
                    raise broken()
                output.shape.append(<int64_t>dim)
        elif found.kind != LEN:
            continue
        elif found.number == 1:
            output.name = text_of(&found)
        elif found.number == 2:
            output.datatype = text_of(&found)
        elif found.number == 4:
            take_parameter(&found, output.parameters)
        elif found.number == 5:
            output.has_contents = True
        if len(output.shape) > RANK_MAX:
            raise BadResponse(f"output '{output.name:.100}' has more than {RANK_MAX} dimensions")
    if state != NO_FIELD:
        raise broken()
    return output


cdef BufferTensor tensor_of(bytes message, OutputMessage output, object raw):
    cdef Parameter region = output.parameters.get("shared_memory_region")
    cdef BufferTensor placed
    cdef Contents typed
    cdef bytes data
    if output.datatype not in BY_WIRE:
        raise BadResponse(f"output '{output.name:.100}' has datatype '{output.datatype:.60}', known are {', '.join(BY_WIRE)}")
    if region is not None and type(region.value) is str:
        return BufferTensor.in_region(
            output.name, output.datatype, output.shape, region.value, number_of(output, "shared_memory_byte_size"),
            number_of(output, "shared_memory_offset"))
    if raw is not None:
        at, nbytes = raw
        if nbytes == 0:
            placed = BufferTensor.in_region(output.name, output.datatype, output.shape, "", 0)
            if placed.elements:  # Triton says nothing of an output that it wrote where the request asked
                return placed
        return BufferTensor(output.name, output.datatype, output.shape, memoryview(message)[at:at + nbytes])
    typed = measure_contents(
        output.data, output.nbytes, BY_WIRE[output.datatype].code, output.name, output.datatype, "")
    data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>typed.nbytes)
    if typed.nbytes:
        typed.fill(<unsigned char *>PyBytes_AS_STRING(data))
    return BufferTensor(output.name, output.datatype, output.shape, data)


cdef object number_of(OutputMessage output, str name):
    cdef Parameter parameter = output.parameters.get(name)
    if parameter is None:
        return 0
    if type(parameter.value) is not int or parameter.value < 0:
        raise BadResponse(f"'{name}' of output '{output.name:.100}' is {parameter.value!r:.60}")
    return parameter.value


def read_infer_response(bytes message) -> InferResponse:
    """A ModelInferResponse; its outputs refer to the message.  Raises BadResponse."""
    return read_response(message, 0, <uint64_t>len(message))


def read_stream_response(bytes message) -> tuple:
    """(error, response) of a ModelStreamInferResponse; error "" for none.  Raises BadResponse."""
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(message)
    cdef Cursor c = cursor(data, <uint64_t>len(message))
    cdef Field found
    cdef uint64_t begin = 0, end = 0
    cdef str error = ""
    cdef int state
    while True:
        state = next_field(&c, &found)
        if state != FIELD:
            break
        if found.kind == LEN and found.number == 1:
            error = found.data[:found.nbytes].decode("utf-8", "replace")
        elif found.kind == LEN and found.number == 2:
            begin, end = <uint64_t>(found.data - data), <uint64_t>(found.data - data) + found.nbytes
    if state != NO_FIELD:
        raise BadResponse("the server's message is no ModelStreamInferResponse")
    return error, read_response(message, begin, end)
