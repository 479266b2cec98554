"""Decode reply records (WIRE.md, Calls): the answers that other models give to this one's calls.

Small tensors lie behind the record and are copied out of it.  Large ones stay where the answering model has them, and
this process sees them through a window, until user code has let go of the last array over it.
"""

import ctypes
import struct

from tisfast_worker import limits
from tisfast_worker.device_tensor import DeviceInput
from tisfast_worker.errors import ErrorCode, TritonError
from tisfast_worker.failure import WireError
from tisfast_worker.foreign_memory import SHARE_SHIFT
from tisfast_worker.native import TF_ANSWER
from tisfast_worker.response import InferenceResponse
from tisfast_worker.tensor import ArenaTensor, InputLayout

HEAD = struct.Struct("<IHHII")  # signature_bytes, outputs, zero, parameters_bytes, zero
_TENSOR = struct.Struct("<BBHI")  # data type, rank, bytes of the name, zero
_FULL = "no room in the input arena of this model for the answer to a call; retry when others have been answered"


class ReplyMemory:
    """Memory of one answer that the server keeps for us.  Whoever refers to it keeps it so."""

    __slots__ = ("_release", "number", "on_gpu")

    def __init__(self, number, release):
        """`release(number, on_gpu)` is called when nobody refers to it any more, by a finaliser."""
        self.number, self._release, self.on_gpu = number, release, False

    def __del__(self):
        """Give the memory back; some on the GPU when what the model queued there, which may read it, is done."""
        self._release(self.number, self.on_gpu)


class TensorHold(ctypes.c_char * (1 << SHARE_SHIFT)):
    """The owner of arrays over one tensor of an answer: it keeps the window on it, and the answer."""

    def __del__(self):
        """User code has let go of it."""
        self.foreign.give_back(self.window)


class ReplyPlan:
    """The meaning of one signature."""

    __slots__ = ("layouts", "refs", "refs_at")


class ReplyReader:
    """Makes responses of reply slots."""

    def __init__(self, plane, release):
        """`release(answer, on_gpu)`: tell the server that an answer's memory may go; from any thread and finaliser."""
        self._memory, self._foreign, self._release = plane.inputs.memory, plane.foreign, release
        self._may_be_on_gpu = plane.device_arena is not None
        self._plans = {}

    def read(self, kind, status, nbytes, offset, answer, told):
        """The response of one slot.  Whatever is wrong with it becomes an error of this response."""
        if kind != TF_ANSWER:
            return self._error(status, nbytes, offset, answer)
        if not nbytes:
            return InferenceResponse()
        keep = ReplyMemory(answer, self._release)
        try:
            return self._response(offset, nbytes, keep, told)
        except (WireError, struct.error, UnicodeDecodeError) as error:
            return InferenceResponse([], TritonError(f"the answer to a call cannot be read: {error}"))

    def _error(self, status, nbytes, offset, answer):
        text = bytes(self._memory[offset : offset + nbytes]).decode("utf-8", "replace") if nbytes else _FULL
        if answer:
            self._release(answer, False)
        code = status - 1 if 0 <= status - 1 <= ErrorCode.CANCELLED else ErrorCode.INTERNAL
        return InferenceResponse([], TritonError(text, ErrorCode(code)))

    def _response(self, offset, nbytes, answer, told):
        memory = self._memory
        signature_bytes, outputs, _, parameters_bytes, _ = HEAD.unpack_from(memory, offset)
        signature = memory[offset + HEAD.size : offset + HEAD.size + signature_bytes]
        plan = self._plans.get(signature) or self._learn(signature, outputs, nbytes)
        refs = plan.refs.unpack_from(memory, offset + plan.refs_at)
        tensors = []
        for layout, place, size in zip(plan.layouts, refs[::2], refs[1::2]):
            if layout.nbytes is not None and size != layout.nbytes:
                raise WireError(f"output '{layout.name}' has {size} bytes, its shape says {layout.nbytes}")
            if place >> SHARE_SHIFT:
                tensors.append(self._held(layout, place, size, answer, told))
            else:
                tensors.append(ArenaTensor(layout, bytearray(memory[place : place + size]), 0, size))
        at = offset + plan.refs_at + plan.refs.size
        response = InferenceResponse(tensors)
        response._parameters = memory[at : at + parameters_bytes].decode()
        return response

    def _held(self, layout, place, nbytes, answer, told):
        if self._may_be_on_gpu:
            memory = self._foreign.on_device_ahead(place, nbytes, answer, layout, told)
            if memory.__class__ is bytearray:
                return ArenaTensor(layout, memory, 0, nbytes)
            if memory is not None:
                answer.on_gpu = True
                return DeviceInput(layout.name, layout.code, memory)
        window = self._foreign.window_ahead(place, nbytes, layout.name, told)
        held = TensorHold.from_address(window.base)
        held.window, held.answer, held.foreign = window, answer, self._foreign
        return ArenaTensor(layout, held, window.offset, nbytes)

    def _learn(self, signature, outputs, nbytes):
        plan = ReplyPlan()
        plan.layouts, at = [], 0
        while at < len(signature):
            code, rank, name_bytes, _ = _TENSOR.unpack_from(signature, at)
            shape = struct.unpack_from(f"<{rank}q", signature, at + _TENSOR.size)
            at += _TENSOR.size + 8 * rank
            plan.layouts.append(InputLayout(signature[at : at + name_bytes].decode(), code, shape))
            at += name_bytes + -name_bytes % 8
        plan.refs = struct.Struct("<%sQ" % (2 * outputs))
        plan.refs_at = HEAD.size + len(signature)
        if len(plan.layouts) != outputs or plan.refs_at + plan.refs.size > nbytes:
            raise WireError(f"a reply record of {nbytes} bytes says {outputs} outputs but lists others")
        if len(self._plans) >= limits.PLANS_MAX:
            self._plans.clear()
        self._plans[signature] = plan
        return plan
