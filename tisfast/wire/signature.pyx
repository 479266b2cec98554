"""Names, types and shapes of a model version's tensors, as the codecs need them.  Layer 2 (wire)."""

import math

import orjson

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.types import BY_CODE, NO_DEVICE, identity_of

# Bytes of a request record beside what inputs need: fixed head, alignment, id and parameters of a usual request.
cdef uint32_t RECORD_SLACK = 48 + 8 + 256


cdef class TensorSpec:
    """One input or output.  dims: as configured, -1 for variable, without the batch dimension."""

    def __init__(self, str name, int index, int dtype, dims, *, bint optional=False, bint ragged=False, labels=()):
        if dtype not in BY_CODE:
            raise BadRequest(f"tensor '{name}' has data type code {dtype}; known codes are 1 to {max(BY_CODE)}")
        self.name = name
        self.index = index
        self.dtype = dtype
        self.datatype = BY_CODE[dtype].wire
        self.dims = tuple(dims)
        self.optional = optional
        self.ragged = ragged
        self.labels = tuple(labels)

    def __repr__(self):
        return f"TensorSpec({self.name!r}, {self.datatype}, {list(self.dims)})"


# A text as a field of a protobuf message; number < 16.
cdef bytes text_field(int number, str text):
    cdef bytes data = text.encode()
    cdef list head = [number << 3 | 2]
    cdef Py_ssize_t n = len(data)
    while n >= 0x80:
        head.append(n & 0x7F | 0x80)
        n >>= 7
    head.append(n)
    return bytes(head) + data


cdef uint64_t expanded_bytes_max(list inputs, int batch_size_max) except? 0:
    """The bytes that a body for these inputs may expand to."""
    cdef TensorSpec spec
    total = limits.EXPANDED_BYTES_FREE
    for spec in inputs:
        nbytes = item_bytes(spec.dtype)
        if nbytes == 0 or spec.ragged or min(spec.dims, default=1) < 0:
            return 1 << 63
        elements = math.prod(spec.dims) * batch_size_max
        total += elements * max(nbytes * limits.EXPANDED_SHARE_MAX, limits.EXPANDED_ELEMENT_BYTES)
    return min(total, 1 << 63)


cdef class ModelSignature:
    """inputs: (name, dtype code, dims, optional, ragged) each; outputs: (name, dtype code, dims) each,
    and the labels of its classes where it has any."""

    def __init__(self, str name, str version, int max_batch_size, bint decoupled, inputs, outputs):
        self.name = name
        self.version = version
        self.namespace = ""
        self.max_batch_size = max_batch_size
        self.decoupled = self.copies_regions = decoupled
        self.device_inputs = self.device_inputs_meant = self.device_outputs = NO_DEVICE
        self.inputs = [
            TensorSpec(spec[0], i, spec[1], spec[2], optional=spec[3], ragged=spec[4]) for i, spec in enumerate(inputs)
        ]
        self.outputs = [
            TensorSpec(spec[0], i, spec[1], spec[2], labels=spec[3] if len(spec) > 3 else ()) for i, spec in enumerate(outputs)
        ]
        if len(self.outputs) > limits.OUTPUTS_MAX:
            raise BadRequest(f"model '{name}' has {len(self.outputs)} outputs; at most {limits.OUTPUTS_MAX} are served")
        self.input_by_name = {spec.name: spec for spec in self.inputs}
        self.output_by_name = {spec.name: spec for spec in self.outputs}
        self._derive()

    cdef int _derive(self) except -1:
        cdef TensorSpec spec
        self.batches_vary = False
        self.has_strings = any([spec.dtype == BYTES for spec in self.inputs])
        self.required_inputs = 0
        self.expanded_bytes_max = expanded_bytes_max(self.inputs, max(self.max_batch_size, 1))
        self.record_room = RECORD_SLACK
        for spec in self.inputs:
            self.required_inputs += not spec.optional
            self.record_room += 24 + 8 * (len(spec.dims) + 1)
            if spec.optional or (not spec.ragged and -1 in spec.dims):
                self.batches_vary = True
        self.all_outputs = (<object>1 << len(self.outputs)) - 1  # of 64 outputs a C number of 64 bits would be shifted out
        self.head_json = b'"model_name":%b,"model_version":%b' % (orjson.dumps(self.name), orjson.dumps(self.version))
        self.head_message = text_field(1, self.name) + text_field(2, self.version)
        self.heads = {}
        self.messages = {}
        self.layouts = {}
        return 0

    @property
    def identity(self):
        """The name that tells the model from others, with its namespace."""
        return identity_of(self.namespace, self.name)

    def __repr__(self):
        return f"ModelSignature({self.name!r}, {self.version!r}, inputs={self.inputs}, outputs={self.outputs})"
