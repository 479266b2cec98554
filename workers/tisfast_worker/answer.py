"""Encode answer records and their tensors (WIRE.md) into the output arena: one block and one copy for each response.

Equal (batch size, names, types, shapes) give equal layouts, so checks and layout are worked out once.
"""

import ctypes
import struct
import sys

from tisfast_worker import dtypes, limits
from tisfast_worker.errors import ErrorCode
from tisfast_worker.failure import last_line, traceback_text
from tisfast_worker.lookup import serialize_byte_tensor
from tisfast_worker.model import fits, wire_shape
from tisfast_worker.native import TF_ANSWER, TF_ERROR, RawMemory
from tisfast_worker.output import OutputArenaFull
from tisfast_worker.record import TENSOR
from tisfast_worker.tensor import ArenaTensor, count

HEAD = struct.Struct("<IHHII")  # signature_bytes, outputs, zero, parameters_bytes, zero
_ALIGN = 64
_PASSED = 256  # added to a type code in a layout's key: the tensor stays where it is


class AnswerError(Exception):
    """The model's response does not fit its configuration; the text goes to the client."""


class Layout:
    """Where everything of an answer lies in its block.

    `joined`: small and of fixed size, written in one go; `record` is then its record, as it always is.
    `passed`: every tensor stays where it came from.
    """

    __slots__ = ("gaps", "head", "joined", "passed", "record", "record_bytes", "refs", "refs_at", "sizes", "total")


class AnswerWriter:
    """Writes the answers of one instance: (kind, status, meta_bytes, block) of each, for the ring."""

    def __init__(self, model, arena, trace):
        """`arena` is the OutputArena; trace(request, traceback, text): logs what is wrong with a response."""
        self._model, self._arena, self._trace = model, arena, trace
        self._memory, self._raw = arena.memory, RawMemory(arena.memory)
        self._take, self._offset = arena.take, arena.offset
        self._specs = {spec.name: spec for spec in model.outputs}
        self._all = (1 << len(model.outputs)) - 1
        self._layouts = {}

    def write(self, request, response):
        """One response to an ArenaRequest."""
        try:
            return self._write(request, response)
        except AnswerError as error:
            return self._wrong(request, str(error), "")
        except OutputArenaFull as error:
            return self.full(error)
        except Exception as error:  # user objects answer for themselves here: __str__ of elements, subclasses of ours
            text = f"a response of model '{self._model.name}' cannot be encoded: {last_line(error)}"
            return self._wrong(request, text, traceback_text(error))

    def _wrong(self, request, text, traceback):
        """The model's mistake: told to the client and, once, to the log.  What finds no room is written again."""
        written = self.error(ErrorCode.INTERNAL, text)
        if written[3]:
            self._trace(request, traceback, text)
        return written

    def error(self, code, text):
        """An error for one request; `code` is an ErrorCode, one less than the status on the wire."""
        raw = text.encode("utf-8", "replace")[: limits.ERROR_TEXT_BYTES_MAX]
        try:
            block = self._take(len(raw) or 1)
        except OutputArenaFull as error:
            return self.full(error)
        at = self._offset(block)
        self._raw.write(at, raw)
        return TF_ERROR, code + 1, len(raw), block

    def full(self, error):
        """No room: the server knows the text for block 0; an answer larger than the arena is told in full."""
        text = str(error)
        return self.error(ErrorCode.UNAVAILABLE, text) if text else (TF_ERROR, ErrorCode.UNAVAILABLE + 1, 0, 0)

    def _write(self, request, response):
        if response._error is not None:
            return self.error(response._error.code(), response._error.message())
        tensors = response._tensors
        if request._head[3] & self._all != self._all:
            tensors = self._asked(tensors, request._head[3])
        facts = [request.batch]
        sources = []  # per tensor: its array, or (place, bytes) of an input
        for tensor in tensors:
            array = tensor._array
            if array is None:
                self._odd_source(tensor, request, facts, sources)
                continue
            passed = _passed(array, request)
            if passed is None:
                code = tensor._code
                sources.append(array)
            else:
                code = tensor._code | _PASSED
                sources.append(passed)
            facts.append(tensor._name)
            facts.append(code)
            facts.append(array.shape)
        key = tuple(facts)
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._learn(key)
        if layout.passed and not response._parameters:
            return self._write_passed(layout, sources)
        if not layout.joined or response._parameters:
            return self._write_parts(layout, sources, response._parameters.encode())
        block = self._take(layout.total)
        at = self._offset(block)
        parts = [layout.record]
        for gap, array in zip(layout.gaps, sources):
            parts.append(gap)
            parts.append(array if array.__class__ is bytes else array.tobytes())  # bytes: of a tensor that nobody read
        self._raw.write(at, b"".join(parts))
        return TF_ANSWER, 0, layout.record_bytes, block

    def _write_passed(self, layout, sources):
        """Every tensor stays where it is: the answer is its record."""
        refs = []
        for place, nbytes in sources:
            refs.append(0)
            refs.append(place)
            refs.append(nbytes)
        block = self._take(layout.record_bytes)
        at = self._offset(block)
        self._raw.write(at, layout.head)
        layout.refs.write(at + layout.refs_at, tuple(refs))
        return TF_ANSWER, 0, layout.record_bytes, block

    def _write_parts(self, layout, sources, parameters):
        """The general case: large, by reference, of variable size, or with parameters."""
        sources = [_as_bytes(source, layout.sizes[i]) for i, source in enumerate(sources)]
        record_bytes = layout.record_bytes + len(parameters)
        end, places = record_bytes, []
        for source in sources:
            if source.__class__ is tuple:
                places.append(None)
                continue
            end += -end % _ALIGN
            places.append(end)
            end += len(source) if source.__class__ is bytes else source.nbytes
        block = self._take(end)
        at = self._offset(block)
        refs = []
        for place, source in zip(places, sources):
            if place is None:
                refs += (0, source[0], source[1])
            else:
                refs += (1, place, len(source) if source.__class__ is bytes else source.nbytes)
                self._copy(at + place, source)
        self._raw.write(at, self._head(layout, len(parameters)))
        layout.refs.write(at + layout.refs_at, tuple(refs))
        self._raw.write(at + layout.record_bytes, parameters)
        return TF_ANSWER, 0, record_bytes, block

    def _copy(self, at, source):
        if source.__class__ is bytes:
            self._memory[at : at + len(source)] = source
        else:  # numpy copies any strides once, straight into the arena
            sys.modules["numpy"].ndarray(source.shape, source.dtype, self._memory, at)[...] = source

    @staticmethod
    def _head(layout, parameters_bytes):
        if not parameters_bytes:
            return layout.head
        first = HEAD.unpack_from(layout.head)
        return HEAD.pack(*first[:3], parameters_bytes, 0) + layout.head[HEAD.size :]

    def _asked(self, tensors, requested):
        """Row 16.32: outputs that the client did not ask for are dropped before anything is copied."""
        asked = []
        for tensor in tensors:
            spec = self._specs.get(tensor._name)
            if spec is None:
                self._unknown(tensor._name)
            if requested >> spec.index & 1:
                asked.append(tensor)
        return asked

    def _odd_source(self, tensor, request, facts, sources):
        """A tensor without an array: an input returned unread, BF16, or in GPU memory."""
        shape = tuple(tensor.shape())
        if isinstance(tensor, ArenaTensor):
            place = (tensor._offset, tensor._nbytes) if tensor._lease is request._lease else None
            if place is None and request.windows:
                place = request.passed_unread(tensor)
            own = place is not None
            sources.append(place if own else tensor.raw_bytes())
        else:
            own = False
            sources.append(tensor._content())
        facts += (tensor._name, tensor._code | (_PASSED if own else 0), shape)

    def _learn(self, key):
        layout = Layout()
        signature, sizes = [], []
        seen = set()
        for name, code, shape in zip(key[1::3], key[2::3], key[3::3]):
            spec = self._check(name, code & ~_PASSED, shape, key[0])
            if name in seen:
                raise AnswerError(f"model '{self._model.name}' returned output '{name}' twice in one response")
            seen.add(name)
            wired = wire_shape(spec, shape, self._model.batched)
            signature.append(TENSOR.pack(spec.index, spec.code, len(wired), 0) + struct.pack(f"<{len(wired)}q", *wired))
            fixed = code < dtypes.BYTES
            sizes.append(count(shape) * dtypes.TYPES[code][2] if fixed else None)
        raw = b"".join(signature)
        layout.head = HEAD.pack(len(raw), len(sizes), 0, 0, 0) + raw + bytes(-len(raw) % 8)
        layout.refs = self._raw.fields(struct.Struct("<%sQ" % (3 * len(sizes))))
        layout.refs_at = len(layout.head)
        layout.record_bytes = layout.refs_at + 24 * len(sizes)
        layout.sizes = sizes
        layout.passed = sizes != [] and all(code & _PASSED for code in key[2::3])
        _place(layout)
        if len(self._layouts) >= limits.PLANS_MAX:
            self._layouts.clear()
        self._layouts[key] = layout
        return layout

    def _check(self, name, code, shape, batch):
        model = self._model
        spec = self._specs.get(name)
        if spec is None:
            self._unknown(name)
        if code != spec.code:
            raise AnswerError(
                f"model '{model.name}' returned output '{name}' with data type {dtypes.wire_name(code)}, its config "
                f"says {dtypes.wire_name(spec.code)}"
            )
        if not fits(spec, shape, batch, model.batched):
            wanted = spec.dims if spec.reshape is None else spec.reshape
            raise AnswerError(
                "unexpected shape for output '{}' for model '{}'. Expected {}, got {}{}".format(
                    *(name, model.name, dtypes.dims_text((batch, *wanted) if model.batched else wanted)),
                    *(dtypes.dims_text(shape), ": the first dimension is the request's batch" if model.batched else ""),
                )
            )
        return spec

    def _unknown(self, name):
        raise AnswerError(
            "model '{}' returned output '{}', which its config does not have; it has {}".format(
                self._model.name, name, ", ".join(f"'{known}'" for known in self._specs)
            )
        )


def _place(layout):
    """Fix the places of all tensors when every size is known."""
    layout.joined, layout.gaps = None not in layout.sizes, []
    if not layout.joined:
        return
    end, refs = layout.record_bytes, []
    for nbytes in layout.sizes:
        gap = -end % _ALIGN
        layout.gaps.append(bytes(gap))
        refs += (1, end + gap, nbytes)
        end += gap + nbytes
    layout.record, layout.total = layout.head + struct.pack(f"<{len(refs)}Q", *refs), end
    layout.joined = end <= limits.JOIN_BYTES_MAX


def _as_bytes(source, size):
    """BYTES arrays (of unknown size in the layout) in KServe's form; all else as it is."""
    if size is None and source.__class__ not in (tuple, bytes):
        return serialize_byte_tensor(source)
    return source


def _passed(array, request):
    """(place, bytes) of an array that is an input of this request, or a large view of one.

    `array.base is lease` holds only for what as_numpy() made; views of it have it as their base.
    """
    base, lease = array.base, request._lease
    if base is None:
        return None
    if base is not lease and (getattr(base, "base", None) is not lease or array.nbytes < limits.PASS_VIEW_BYTES_MIN):
        return request.passed(array) if request.windows else None
    if not array.flags.c_contiguous:
        return None
    tensors = request._tensors
    if tensors is not None:
        for tensor in tensors:
            if tensor is not None and tensor._array is array:  # as it came: numpy need not be asked for its address
                return tensor._offset, tensor._nbytes
    return array.__array_interface__["data"][0] - ctypes.addressof(lease), array.nbytes
