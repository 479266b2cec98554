"""Inputs and answers of calls that lie on the GPU (WIRE.md, Calls): they stay there where both models do so."""

import time

from tisfast_worker import limits
from tisfast_worker.control_messages import ControlClosed
from tisfast_worker.request import TRITONSERVER_MEMORY_CPU
from tisfast_worker.serving_context import current

FROM_REQUEST, FROM_ANSWER, FROM_LENT = 0, 2, 3  # whose memory an input lies in


class DeviceCalls:
    """What the calls of an instance on a GPU have there.  From any thread."""

    def __init__(self, arena, known, ticket_of):
        """`arena`: the DeviceArena; `known`: the KnownMemory; `ticket_of(lease)`: of a request, or None."""
        self._arena, self._known, self._ticket_of = arena, known, ticket_of
        self._takers = {}  # (model, version): (whether it takes memory of this GPU, until when that is believed)

    def wants_outputs(self, request):
        """Whether outputs that the called model leaves on this GPU shall stay there."""
        preferred = request._preferred
        return preferred is None or preferred.preferred_memory_type != TRITONSERVER_MEMORY_CPU

    def place(self, request, tensor, parts):
        """The place of an input, a DeviceTensor: (source, owner, place, bytes); None: it goes by way of host memory.

        A part of lent memory that it is copied to is added to `parts`.  Raises TritonModelException.
        """
        if not tensor.nbytes() or not self._takes(request._model_name, request._model_version):
            return None
        for memory in self._known.around(tensor):
            source, owner = FROM_ANSWER, getattr(memory.lease, "number", None)
            if owner is None:
                source, owner = FROM_REQUEST, self._ticket_of(memory.lease)
            if owner is not None:
                self._arena.wait()
                return source, owner, memory.place + tensor.address() - memory.address, tensor.nbytes()
        copied = self._arena.copy(tensor)
        if copied is None:
            return None
        part, offset, nbytes = copied
        parts.append(part)
        return FROM_LENT, 0, offset, nbytes

    def keep(self, block, parts):
        """The parts are the call's whose record lies in this block."""
        self._arena.keep(block, parts)

    def free(self, parts):
        """There is no such call."""
        self._arena.free(parts)

    def _takes(self, model, version):
        """Whether the model takes inputs on this GPU: what it did lately, as each time the server is asked costs.

        One that has changed meanwhile gets its inputs all the same: the server copies them.
        """
        takes, until = self._takers.get((model, version), (False, 0))
        now = time.monotonic()
        if now < until:
            return takes
        asked = {"t": "model", "do": "takes_gpu", "name": model, "version": "" if version < 0 else str(version)}
        try:
            takes = current().ask(asked)["takes"]
        except ControlClosed:
            takes = None
        if takes is None:  # there is no such model now
            return False
        if len(self._takers) >= limits.PLANS_MAX:
            self._takers.clear()
        self._takers[model, version] = (takes, now + limits.TAKES_GPU_SECONDS)
        return takes
