"""Encode call records (WIRE.md, Calls) into the output arena: what is large and lies in shared memory stays there.

Equal (model, version, outputs, names, types, shapes) give equal signatures, so those are made once.
"""

import contextlib
import ctypes
import struct
import sys
import time

from tisfast_worker import dtypes, limits
from tisfast_worker.device_calls import FROM_ANSWER, FROM_REQUEST
from tisfast_worker.device_tensor import DeviceTensor
from tisfast_worker.errors import TritonModelException
from tisfast_worker.foreign_memory import Window
from tisfast_worker.output import OutputArenaFull
from tisfast_worker.pb_utils_functions import serialize_byte_tensor
from tisfast_worker.reply_record import TensorHold
from tisfast_worker.tensor import ArenaTensor

# signature_bytes, inputs, flags, timeout, correlation, parent, trace, id, parameters, correlation bytes, zero
HEAD = struct.Struct("<IHHQQQQIIII")
PLACE = struct.Struct("<QQQQ")  # source, owner, place, bytes
FROM_CALL = 1  # beside those of device_calls.py
CORRELATION_IS_TEXT, ANY_NUMBER, WAITS, TAKES_GPU = 4, 8, 16, 32  # flags beside the sequence's
NOBODY = (1 << 64) - 1  # as a parent or trace
_MODEL = struct.Struct("<HHIq")  # bytes of the name, outputs named, zero, version
_TENSOR = struct.Struct("<BBHI")  # data type, rank, bytes of the name, zero
_ALIGN = 64


class CallWriter:
    """Writes the calls of one instance.  From any thread: what it asks of the arena is one C call each."""

    def __init__(self, plane, arena, ticket_of, devices):
        """`arena`: a CallArena; `ticket_of(lease)`: of the request whose inputs it holds, or None; `devices`: the
        DeviceCalls of an instance on a GPU, or None.
        """
        self._arena, self._memory = arena, plane.outputs.memory
        self._input_bytes = plane.inputs.nbytes
        self._foreign, self._ticket_of, self._devices = plane.foreign, ticket_of, devices
        self._signatures = {}

    def write(self, request, flags, parent, trace):
        """(block, bytes of the record) of an InferenceRequest.  Raises TritonModelException, OutputArenaFull."""
        if self._devices is None:
            return self._write(request, flags, parent, trace, None)
        if self._devices.wants_outputs(request):
            flags |= TAKES_GPU
        parts = []  # of lent memory
        try:
            block, nbytes = self._write(request, flags, parent, trace, parts)
        except BaseException:
            self._devices.free(parts)
            raise
        self._devices.keep(block, parts)
        return block, nbytes

    def _write(self, request, flags, parent, trace, parts):  # noqa: PLR0913, PLR0917 - as `write`
        tensors = request._tensors
        signature = self._signature(request, tensors)
        correlation = request._correlation
        text = correlation.encode() if correlation.__class__ is str else b""
        strings = request._id.encode() + request._parameters.encode() + text
        end = record_bytes = HEAD.size + len(signature) + PLACE.size * len(tensors) + len(strings)
        places, copies = [], []
        for tensor in tensors:
            source = self._source(tensor, request, parts)
            if source.__class__ is tuple:
                places.append(source)
                continue
            end += -end % _ALIGN
            nbytes = len(source) if source.__class__ is bytes else source.nbytes
            copies.append((end, source))
            places.append((FROM_CALL, 0, end, nbytes))
            end += nbytes
        block = self._arena.take(end)
        at = self._arena.offset(block)
        head = HEAD.pack(
            *(len(signature), len(tensors), flags | request._flags & 3 | (CORRELATION_IS_TEXT if text else 0)),
            *(request._timeout, 0 if text else correlation, parent, trace),
            *(len(request._id.encode()), len(request._parameters.encode()), len(text), 0),
        )
        refs = [
            PLACE.pack(source, owner, at + place if source == FROM_CALL else place, nbytes)
            for source, owner, place, nbytes in places
        ]
        self._memory[at : at + record_bytes] = b"".join((head, signature, *refs, strings))
        for place, source in copies:
            self._copy(at + place, source)
        return block, record_bytes

    def _copy(self, at, source):
        if source.__class__ is bytes:
            self._memory[at : at + len(source)] = source
        else:  # numpy copies any strides once, straight into the arena
            sys.modules["numpy"].ndarray(source.shape, source.dtype, self._memory, at)[...] = source

    def _source(self, tensor, request, parts):
        """Where the tensor's bytes are: (source, owner, place, bytes), or an array or bytes to copy."""
        array = tensor._array
        if array is None:
            return self._unread(tensor, request, parts)
        if tensor._code == dtypes.BYTES:
            return serialize_byte_tensor(array)
        base = array.base
        if base is None or array.nbytes < limits.PASS_VIEW_BYTES_MIN or not array.flags.c_contiguous:
            return array
        if not isinstance(base, ctypes.Array):
            base = getattr(base, "base", None)  # a view of an array that as_numpy() made
            if not isinstance(base, ctypes.Array):
                return array
        offset = array.__array_interface__["data"][0] - ctypes.addressof(base)
        return self._place(base, offset, array.nbytes) or array

    def _unread(self, tensor, request, parts):
        """A tensor that no array was made of: an input passed on, BF16, or in GPU memory."""
        if self._devices is not None and isinstance(tensor, DeviceTensor):
            return self._devices.place(request, tensor, parts) or tensor._content()
        if not isinstance(tensor, ArenaTensor):
            return tensor._content()
        if tensor._nbytes < limits.PASS_VIEW_BYTES_MIN:
            return tensor.raw_bytes()
        return self._place(tensor._lease, tensor._offset, tensor._nbytes) or tensor.raw_bytes()

    def _place(self, base, offset, nbytes):
        """The place of memory that `base` keeps: None when it is none of ours, or no longer what others see of it."""
        if isinstance(base, TensorHold):
            written = self._foreign.is_written(base.window)
            return None if written else (FROM_ANSWER, base.answer.number, _place_in(base.window, offset), nbytes)
        if isinstance(base, Window):
            ticket = None if base.lease is None or self._foreign.is_written(base) else self._ticket_of(base.lease)
            return None if ticket is None else (FROM_REQUEST, ticket, _place_in(base, offset), nbytes)
        if getattr(base, "_length_", 0) != self._input_bytes:
            return None
        ticket = self._ticket_of(base)
        return None if ticket is None else (FROM_REQUEST, ticket, offset, nbytes)

    def _signature(self, request, tensors):
        key = [request._model_name, request._model_version, request._requested]
        for tensor in tensors:
            array = tensor._array
            key += (tensor._name, tensor._code, tuple(tensor.shape()) if array is None else array.shape)
        key = tuple(key)
        signature = self._signatures.get(key)
        if signature is None:
            signature = _new_signature(key)
            if len(self._signatures) >= limits.PLANS_MAX:
                self._signatures.clear()
            self._signatures[key] = signature
        return signature


def _place_in(window, offset):
    """The place as the server knows it: the share's number, and the offset in its file."""
    return window.place + offset - window.offset


def _new_signature(key):
    model, version, requested = key[:3]
    name = _named(model)
    parts = [_MODEL.pack(len(name), len(requested), 0, version), name]
    for output in sorted(requested):
        raw = _named(output)
        parts.append(struct.pack("<H", len(raw)) + raw)
    head = b"".join(parts)
    parts = [head, bytes(-len(head) % 8)]
    for name, code, shape in zip(key[3::3], key[4::3], key[5::3]):
        raw = _named(name)
        parts.append(_TENSOR.pack(code, len(shape), len(raw), 0) + struct.pack(f"<{len(shape)}q", *shape) + raw)
        parts.append(bytes(-len(raw) % 8))
    return b"".join(parts)


def _named(name):
    raw = name.encode()
    if len(raw) > limits.CALL_NAME_BYTES_MAX:
        raise TritonModelException(
            f"InferenceRequest: a name of {len(raw)} bytes; {limits.CALL_NAME_BYTES_MAX} is the limit ({name[:40]!r})"
        )
    return raw


class CallArena:
    """The output arena for calls: from any thread, and waiting without the lock that others need to make room."""

    def __init__(self, outputs, lock):
        """`lock`: of whoever counts owners of blocks, or None."""
        self._outputs, self._lock = outputs, lock or contextlib.nullcontext()
        self.offset = outputs.offset

    def take(self, nbytes):
        """Handle of a block.  May wait for the server, bounded.  Raises OutputArenaFull."""
        outputs = self._outputs
        with self._lock:
            block = outputs.take_now(nbytes)
        if block:
            return block
        if nbytes > outputs.use_bytes_max:
            raise OutputArenaFull(
                f"a call of {nbytes} bytes does not fit the output arena of {outputs.use_bytes_max} bytes"
            )
        pause = limits.OUTPUT_WAIT_STEP_SECONDS_MAX / 50
        deadline = time.monotonic() + limits.OUTPUT_WAIT_SECONDS_MAX
        while time.monotonic() < deadline:
            with self._lock:
                outputs.collect()
                block = outputs.take_now(nbytes)
            if block:
                return block
            time.sleep(pause)
            pause = min(2 * pause, limits.OUTPUT_WAIT_STEP_SECONDS_MAX)
        raise OutputArenaFull(
            f"the output arena had no room for a call of {nbytes} bytes for {limits.OUTPUT_WAIT_SECONDS_MAX} s"
        )
