"""An inference request as a client writes it over HTTP; see client_request.pxd.  Layer 2 (wire).

The id comes first and everything else in the order in which it was given: the server remembers what it has read before
(wire/infer), and only an id in front may differ then.  Tensors are not copied.
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint64_t
from tisfast.wire.buffer_tensor cimport BufferTensor
from tisfast.wire.grpc.encode cimport encoded_parameters, field, text_field
from tisfast.wire.respond cimport put_elements
from tisfast.wire.signature cimport BF16, BYTES, FP16

from typing import NamedTuple
from urllib.parse import quote

import orjson

from tisfast import tuning
from tisfast.errors import BadRequest

cdef Py_ssize_t TEXT_BYTES_KEPT = tuning.CLIENT_TEXT_BYTES_KEPT
cdef WantedOutputs ALL_OUTPUTS = WantedOutputs()


class WantedOutput(NamedTuple):
    """One output that is asked for.

    binary: as bytes behind the JSON (HTTP; gRPC has nothing else).  classes: instead of the tensor its so many best classes,
    0 for none.  region: the shared memory, by the name that the server knows, that it is written into: at most nbytes at offset.
    """

    name: str
    binary: bool = True
    classes: int = 0
    region: str | None = None
    nbytes: int = 0
    offset: int = 0


cdef class WantedOutputs:
    """outputs: WantedOutput of each; none of them: all that the model has, in binary form if the request says so.

    Raises BadRequest where classes of an output that goes into a region are asked for.
    """

    def __init__(self, outputs=()):
        self.outputs = tuple(outputs)
        entries, messages = [], []
        for output in self.outputs:
            parameters = output_parameters(output)
            messages.append(field(6, text_field(1, output.name) + encoded_parameters(2, parameters)))
            if output.region is None:
                parameters["binary_data"] = output.binary
            entries.append({"name": output.name, "parameters": parameters})
        self.json = b',"outputs":' + orjson.dumps(entries) if entries else b""
        self.message = b"".join(messages)


cdef dict output_parameters(output):
    if output.region is None:
        return {"classification": output.classes} if output.classes else {}
    if output.classes:
        raise BadRequest(f"output '{output.name}' cannot be classified and written into the region '{output.region}'")
    parameters = {"shared_memory_region": output.region, "shared_memory_byte_size": output.nbytes}
    if output.offset:
        parameters["shared_memory_offset"] = output.offset
    return parameters


cdef class RequestBody:
    """See client_request.pxd."""

    def __cinit__(self):
        self.text = TextBuffer()
        self.parts = []
        self.json_bytes = -1

    cdef int write(self, list inputs, WantedOutputs outputs, dict parameters, str id, bint binary) except -1:
        cdef TextBuffer text = self.text
        cdef bint first = True
        cdef BufferTensor tensor
        self.parts.clear()
        text.reset(TEXT_BYTES_KEPT)
        text.put(b"{", 1)
        if id:
            text.put(b'"id":', 5)
            put_text(text, id)
            text.put(b",", 1)
        if parameters or (binary and not outputs.outputs):
            put_parameters(text, parameters, binary and not outputs.outputs)
        text.put(b'"inputs":[', 10)
        for tensor in inputs:
            if not first:
                text.put(b",", 1)
            first = False
            self._input(tensor, binary)
        text.put(b"]", 1)
        text.put_bytes(outputs.json)
        text.put(b"}", 1)
        self.nbytes = <uint64_t>text.used
        for tensor in self.parts:
            self.nbytes += tensor.nbytes
        self.json_bytes = text.used if self.parts else -1
        return 0

    cdef int _input(self, object item, bint binary) except -1:
        cdef BufferTensor tensor = item
        cdef TextBuffer text = self.text
        text.put(b'{"name":', 8)
        put_text(text, tensor.name)
        text.put(b',"datatype":"', 13)
        put_plain(text, tensor.datatype)
        text.put(b'","shape":[', 11)
        put_shape(text, tensor.shape)
        if tensor.region is not None:
            return put_region(text, tensor)
        if binary:
            text.put(b'],"parameters":{"binary_data_size":', 35)
            text.put_uint(tensor.nbytes)
            if tensor.nbytes:
                self.parts.append(tensor)
            return text.put(b"}}", 2)
        if tensor.dtype == FP16 or tensor.dtype == BF16:
            raise BadRequest(f"input '{tensor.name}' of {tensor.datatype} cannot be written as JSON; send it in binary form")
        if tensor.dtype == BYTES:
            check_texts(tensor)
        text.put(b'],"data":[', 10)
        put_elements(text, tensor.dtype, tensor.data, tensor.nbytes, tensor.elements, tensor.name)
        return text.put(b"]}", 2)

    def render(self, list inputs, *, WantedOutputs outputs=None, dict parameters=None, str id="", bint binary=True) -> list:
        """The body of a request, in pieces: its JSON, and the buffers of tensors where they lie.

        inputs: BufferTensor of each; parameters: of the request (sequence_id, priority, timeout in microseconds, the model's
        own); binary: inputs as bytes behind the JSON, and outputs so, too, unless `outputs` says how.  Raises BadRequest.
        """
        cdef list pieces
        self.write(inputs, ALL_OUTPUTS if outputs is None else outputs, parameters, id, binary)
        pieces = [self.text.value(), *[(<BufferTensor>tensor).buffer() for tensor in self.parts]]
        self.parts.clear()  # the caller's tensors are not this object's to keep
        return pieces


cdef int put_text(TextBuffer text, str value) except -1:
    cdef Py_ssize_t n
    cdef const char *data = PyUnicode_AsUTF8AndSize(value, &n)
    return text.put_string(<const unsigned char *>data, n)


cdef int put_plain(TextBuffer text, str value) except -1:
    cdef Py_ssize_t n
    cdef const char *data = PyUnicode_AsUTF8AndSize(value, &n)
    return text.put(data, n)


cdef int put_shape(TextBuffer text, tuple shape) except -1:
    cdef bint first = True
    for dim in shape:
        if not first:
            text.put(b",", 1)
        first = False
        text.put_int(<int64_t>dim)
    return 0


cdef int put_parameters(TextBuffer text, dict parameters, bint binary_outputs) except -1:
    cdef dict values = dict(parameters) if parameters else {}
    if binary_outputs:
        if not values:
            text.put_bytes(b'"parameters":{"binary_data_output":true},')
            return 0
        values["binary_data_output"] = True
    text.put(b'"parameters":', 13)
    try:
        text.put_bytes(orjson.dumps(values))
    except TypeError as error:
        raise BadRequest(f"request parameters must be bool, int, float or str: {error}") from None
    return text.put(b",", 1)


cdef int put_region(TextBuffer text, BufferTensor tensor) except -1:
    text.put(b'],"parameters":{"shared_memory_region":', 39)
    put_text(text, tensor.region)
    text.put(b',"shared_memory_byte_size":', 27)
    text.put_uint(tensor.nbytes)
    if tensor.offset:
        text.put(b',"shared_memory_offset":', 24)
        text.put_uint(tensor.offset)
    return text.put(b"}}", 2)


cdef int check_texts(BufferTensor tensor) except -1:
    """JSON is UTF-8."""
    try:
        for element in tensor.strings():
            (<bytes>element).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"input '{tensor.name}' has an element that is not UTF-8 ({error}); send it in binary form") from None
    return 0


def target_part(str name) -> str:
    """A name as it stands in a request target.  Raises BadRequest for half a pair of surrogates, which has no UTF-8."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise BadRequest(f"the name {ascii(name)} cannot be sent: {error}") from None


def infer_target(str model, str version="", str call="infer") -> str:
    """The request target of a call ("infer", "generate", "generate_stream") of a model; version "" for its policy's choice.

    Raises BadRequest.
    """
    name = target_part(model)
    return f"/v2/models/{name}/versions/{target_part(version)}/{call}" if version else f"/v2/models/{name}/{call}"
