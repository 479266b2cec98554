"""An inference response as a client reads it over HTTP; see client_response.pxd.  Layer 2 (wire).

Nothing that a server says is believed: sizes are checked against the body and against type and shape.  A head whose outputs
are all binary is remembered without its leading id, as servers remember requests (wire/infer): then only bytes are compared.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint64_t
from tisfast.wire.buffer_tensor cimport BufferTensor
from tisfast.wire.infer cimport leading_id
from tisfast.wire.json_data cimport fill_numbers, fill_strings, load_json, measure_strings
from tisfast.wire.signature cimport BYTES, item_bytes

import orjson

from tisfast import limits
from tisfast.errors import BadRequest, BadResponse, TisError
from tisfast.types import BY_WIRE

cdef Py_ssize_t OUTPUTS_MAX = limits.CLIENT_OUTPUTS_MAX
cdef Py_ssize_t HEADS_MAX = limits.HEAD_CACHE_ENTRIES_MAX
cdef uint64_t HEAD_BYTES_MAX = limits.HEAD_CACHE_BYTES_MAX
cdef Py_ssize_t ERROR_CHARS_MAX = limits.CLIENT_ERROR_CHARS_MAX


cdef class InferResponse:
    """See client_response.pxd."""

    def __cinit__(self):
        self.version = self.id = ""
        self.parameters = {}
        self.outputs = []

    def output(self, str name) -> BufferTensor:
        """The output of that name.  Raises BadResponse when the answer has none."""
        cdef BufferTensor tensor
        for tensor in self.outputs:
            if tensor.name == name:
                return tensor
        raise BadResponse(f"the response of model '{self.model}' has no output '{name}'")


cdef class OutputHead:
    """See client_response.pxd."""


cdef class HeadOfResponse:
    """See client_response.pxd."""


cdef class ResponseReader:
    """See client_response.pxd."""

    def __cinit__(self):
        self.heads = {}

    def infer(self, body, int64_t json_bytes=-1) -> InferResponse:
        """A whole body of a good answer to an inference, in any buffer: the outputs refer to it.

        json_bytes: Inference-Header-Content-Length of the head, -1 when it had none.  Raises BadResponse.
        """
        return self.read(body, json_bytes)

    cdef InferResponse read(self, object body, int64_t json_bytes):
        cdef object view = memoryview(body).cast("B")
        cdef const unsigned char[::1] data = view
        cdef uint64_t nbytes = <uint64_t>data.shape[0]
        cdef uint64_t head_bytes = nbytes if json_bytes < 0 else <uint64_t>json_bytes
        cdef HeadOfResponse head
        if head_bytes == 0 or head_bytes > nbytes:
            raise BadResponse(f"the response has {nbytes} bytes, of which {json_bytes} are to be its JSON")
        head = self._head(&data[0], head_bytes)
        return made(head, id_of(head, &data[0], head_bytes), view[head_bytes:], nbytes - head_bytes)

    cdef HeadOfResponse _head(self, const unsigned char *data, uint64_t n):
        cdef uint64_t begin = 0, skip = leading_id(data, n, &begin)
        cdef HeadOfResponse head
        cdef bytes key = None
        if n - skip <= HEAD_BYTES_MAX:
            key = (b"\x01" if skip else b"\x00") + data[skip:n]  # with or without an id in front
            head = self.heads.get(key)
            if head is not None:
                return head
        try:
            head = parsed_head(load_json(data, <Py_ssize_t>n), n)
        except BadResponse:
            raise
        except TisError as error:
            raise BadResponse(f"the response is no JSON: {error.message}") from None
        if key is not None and head.binary and not (skip and (b'"id"' in key or b"\\" in key)):
            if len(self.heads) >= HEADS_MAX:
                self.heads.clear()
            self.heads[key] = head
        return head


# A second "id" further on would win over the leading one: such heads are not remembered, and are their own.
cdef str id_of(HeadOfResponse head, const unsigned char *data, uint64_t n):
    cdef uint64_t begin = 0, skip = leading_id(data, n, &begin)
    if not skip or not head.binary:
        return head.id
    return PyUnicode_DecodeASCII(<const char *>data + begin, skip - begin - 1, NULL)


cdef InferResponse made(HeadOfResponse head, str id, object tail, uint64_t tail_bytes):
    cdef InferResponse response = InferResponse.__new__(InferResponse)
    cdef OutputHead output
    cdef uint64_t at = 0
    response.model, response.version, response.id = head.model, head.version, id
    response.parameters = dict(head.parameters)
    for output in head.outputs:
        if output.region is not None:
            tensor = region_tensor_of(output)
        elif output.values is not None:
            tensor = tensor_of(output, spelled(output))
        else:
            if output.nbytes > tail_bytes - at:
                raise BadResponse(
                    f"output '{output.name}' is to have {output.nbytes} bytes, {tail_bytes - at} are left in the response")
            tensor = tensor_of(output, tail[at:at + output.nbytes])
            at += output.nbytes
        response.outputs.append(tensor)
    if at != tail_bytes:
        raise BadResponse(f"the response has {tail_bytes - at} bytes behind its last output")
    return response


cdef BufferTensor tensor_of(OutputHead output, object data):
    try:
        return BufferTensor(output.name, output.datatype, output.shape, data)
    except BadRequest as error:
        raise BadResponse(error.message) from None


cdef BufferTensor region_tensor_of(OutputHead output):
    try:
        return BufferTensor.in_region(
            output.name, output.datatype, output.shape, output.region, output.nbytes, output.offset)
    except BadRequest as error:
        raise BadResponse(error.message) from None


cdef bytes spelled(OutputHead output):
    """The bytes of an output whose elements are JSON values."""
    cdef int dtype = BY_WIRE[output.datatype].code
    cdef uint64_t elements = 1, nbytes = 0, got = 0
    cdef bytes data
    cdef unsigned char *at
    for dim in output.shape:
        elements *= <uint64_t>dim
    try:
        if dtype == BYTES:
            measure_strings(output.values, &got, &nbytes, output.name)
        else:
            nbytes = elements * item_bytes(dtype)
        data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>nbytes)
        at = <unsigned char *>PyBytes_AS_STRING(data)
        if dtype == BYTES:
            fill_strings(output.values, &at)
        else:
            fill_numbers(output.values, dtype, at, elements, output.name)
    except BadResponse:
        raise
    except TisError as error:
        raise BadResponse(f"output '{output.name}' cannot be read: {error.message}") from None
    return data


# ---- JSON values to a head

cdef object member(dict values, str name, type kind, object default, str what):
    value = values.get(name, default)
    if type(value) is not kind:
        raise BadResponse(f"'{name}' of {what} is {value!r:.60} and not {kind.__name__}")
    return value


cdef HeadOfResponse parsed_head(object doc, uint64_t json_bytes):
    cdef HeadOfResponse head = HeadOfResponse.__new__(HeadOfResponse)
    cdef OutputHead output
    if type(doc) is not dict:
        raise BadResponse("the response is no JSON object")
    if "error" in <dict>doc:
        raise BadResponse(f"the response is an error: {doc['error']!r:.500}")
    what = "the response"
    head.model = member(doc, "model_name", str, "", what)
    head.version = member(doc, "model_version", str, "", what)
    head.id = member(doc, "id", str, "", what)
    head.parameters = member(doc, "parameters", dict, {}, what)
    outputs = member(doc, "outputs", list, [], what)
    if len(outputs) > OUTPUTS_MAX:
        raise BadResponse(f"the response has {len(outputs)} outputs, {OUTPUTS_MAX} is the limit")
    head.outputs = [parsed_output(entry, json_bytes) for entry in outputs]
    head.binary = True
    for output in head.outputs:
        if output.values is not None:
            head.binary = False
    return head


cdef OutputHead parsed_output(object entry, uint64_t json_bytes):
    cdef OutputHead output = OutputHead.__new__(OutputHead)
    cdef dict parameters
    if type(entry) is not dict:
        raise BadResponse(f"an output of the response is {entry!r:.60}")
    output.name = member(entry, "name", str, None, "an output")
    what = f"output '{output.name:.100}'"
    output.datatype = member(entry, "datatype", str, None, what)
    output.shape = tuple(member(entry, "shape", list, None, what))
    parameters = member(entry, "parameters", dict, {}, what)
    if output.datatype not in BY_WIRE:
        raise BadResponse(f"{what} has datatype '{output.datatype:.60}', known are {', '.join(BY_WIRE)}")
    if "data" in <dict>entry:
        output.values = member(entry, "data", list, None, what)
        check_spelled(output, json_bytes, what)
    elif "binary_data_size" in parameters:
        output.nbytes = size_of(parameters, "binary_data_size", what)
    elif "shared_memory_region" in parameters:
        output.region = member(parameters, "shared_memory_region", str, None, what)
        output.nbytes = size_of(parameters, "shared_memory_byte_size", what)
        output.offset = size_of(parameters, "shared_memory_offset", what)
    else:  # Triton says nothing of an output that it wrote where the request asked
        output.region = ""
    return output


cdef uint64_t size_of(dict parameters, str name, str what) except? 0xFFFFFFFFFFFFFFFF:
    value = member(parameters, name, int, 0, what)
    if not 0 <= value < 1 << 63:
        raise BadResponse(f"'{name}' of {what} is {value!r:.60}")
    return value


cdef int check_spelled(OutputHead output, uint64_t json_bytes, str what) except -1:
    """Before anything is reserved by its shape: each element takes a byte of the text at least."""
    cdef uint64_t elements = 1
    if output.datatype in ("FP16", "BF16"):
        raise BadResponse(f"{what} of {output.datatype} is spelled in JSON, which has no such numbers")
    for dim in output.shape:
        if type(dim) is not int or not 0 <= dim <= json_bytes:
            raise BadResponse(f"{what} has the shape {output.shape!r:.100} in a JSON of {json_bytes} bytes")
        elements *= <uint64_t>dim
        if elements > json_bytes:
            raise BadResponse(f"{what} has the shape {output.shape!r:.100} in a JSON of {json_bytes} bytes")
    return 0


def error_text(bytes body) -> str:
    """The text of an error response: its "error", or its beginning as text."""
    try:
        said = orjson.loads(body)
        if type(said) is dict and type(said.get("error")) is str:
            return said["error"][:ERROR_CHARS_MAX]
    except ValueError:
        pass
    return body[:ERROR_CHARS_MAX].decode("utf-8", "replace")
