"""Decode request records (WIRE.md) from the input arena.  What equal signatures have in common is worked out once."""

import struct

from tisfast_worker import limits
from tisfast_worker.failure import WireError
from tisfast_worker.foreign_memory import FLAG_FOREIGN, FLAG_OUTPUT_PLACES
from tisfast_worker.foreign_request import ForeignRequest
from tisfast_worker.model import model_shape
from tisfast_worker.native import RawMemory
from tisfast_worker.output_places import output_places
from tisfast_worker.request import ArenaRequest
from tisfast_worker.sequence_request import ForeignSequenceRequest, SequenceRequest
from tisfast_worker.tensor import InputLayout

# signature_bytes, inputs, flags, requested, timeout, correlation, id_bytes, parameters_bytes, correlation_bytes, batch
HEAD = struct.Struct("<IHHQQQIIII")
TENSOR = struct.Struct("<HBBI")  # index, dtype, rank, zero


class InputPlan:
    """The decoded form of one signature."""

    __slots__ = ("layouts", "none", "output_names", "position", "refs", "refs_at", "sizes", "strings_at")


class RequestReader:
    """Makes requests of records.  `memory` is the input arena, borrowed for the life of the process."""

    def __init__(self, model, memory, foreign):
        """For one model; `foreign`: the ForeignMemory."""
        self._model, self._foreign = model, foreign
        self._memory = RawMemory(memory)
        self._head = self._memory.fields(HEAD)
        self._output_names = tuple(spec.name for spec in model.outputs)
        self._plans = {}
        # A model without sequences pays nothing for them: its requests are of another class.
        self._here, self._elsewhere = (ArenaRequest, ForeignRequest)
        if model.sequences is not None:
            self._here, self._elsewhere = (SequenceRequest, ForeignSequenceRequest)

    def read(self, offset, nbytes, lease, execution):
        """The request at `offset`, of this Execution.  Raises WireError when its record is not sound."""
        try:
            head = self._head.read(offset)
            signature = self._memory.read(offset + 48, head[0])
            plan = self._plans.get(signature)
            if plan is None:
                plan = self._learn(signature, head[1], nbytes)
            refs = plan.refs.read(offset + plan.refs_at)
        except struct.error as error:
            raise WireError(f"a request record of {nbytes} bytes at {offset} is cut: {error}") from None
        for at, size in enumerate(plan.sizes):
            if refs[2 * at + 1] != size:
                _check_sizes(plan, refs)
        if head[2] & FLAG_FOREIGN:
            request = self._elsewhere(plan, execution, lease, head, refs, offset + plan.strings_at, self._foreign)
            if head[2] & FLAG_OUTPUT_PLACES:
                end = plan.strings_at + head[6] + head[7] + head[8]
                end += -end % 8
                raw = self._memory.read(offset + end, max(nbytes - end, 0))
                request.output_places = output_places(raw, self._foreign)
            return request
        return self._here(plan, execution, lease, head, refs, offset + plan.strings_at)

    def _learn(self, signature, inputs, nbytes):
        plan = InputPlan()
        plan.layouts = self._layouts(signature)
        if len(plan.layouts) != inputs or HEAD.size + len(signature) + 16 * inputs > nbytes:
            raise WireError(f"a request record of {nbytes} bytes says {inputs} inputs but lists others")
        plan.position = {layout.name: at for at, layout in enumerate(plan.layouts)}
        plan.none = (None,) * inputs
        plan.sizes = tuple(layout.nbytes for layout in plan.layouts)
        plan.refs = self._memory.fields(struct.Struct("<%sQ" % (2 * inputs)))
        plan.refs_at = HEAD.size + len(signature) + -len(signature) % 8
        plan.strings_at = plan.refs_at + 16 * inputs
        plan.output_names = self._output_names
        if len(self._plans) >= limits.PLANS_MAX:
            self._plans.clear()
        self._plans[signature] = plan
        return plan

    def _layouts(self, signature):
        layouts, at = [], 0
        while at < len(signature):
            index, code, rank, _ = TENSOR.unpack_from(signature, at)
            shape = struct.unpack_from(f"<{rank}q", signature, at + TENSOR.size)
            at += TENSOR.size + 8 * rank
            if index >= len(self._model.inputs) or code != self._model.inputs[index].code or min(shape, default=0) < 0:
                raise WireError(f"signature has input {index} of type {code} and shape {list(shape)}")
            spec = self._model.inputs[index]
            layouts.append(InputLayout(spec.name, code, model_shape(spec, shape, self._model.batched)))
        return layouts


def _check_sizes(plan, refs):
    """Sizes of BYTES tensors are free (as_numpy checks their elements); all others follow from the shape."""
    for layout, nbytes in zip(plan.layouts, refs[1::2]):
        if layout.nbytes is not None and nbytes != layout.nbytes:
            raise WireError(f"input '{layout.name}' has {nbytes} bytes, its shape says {layout.nbytes}")
