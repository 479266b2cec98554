"""Where clients want outputs in their GPU memory (WIRE.md, Request record): written there by the worker, on the GPU."""

import struct

from tisfast_worker import cuda, limits
from tisfast_worker.cuda import CudaError
from tisfast_worker.failure import WireError
from tisfast_worker.foreign_memory import OFFSET

_FREED = ". Most likely a client has freed one of these before it unregistered it"
_TO_STAY = (
    ". If the client has freed this memory, or has ended: it must keep the memory until it has unregistered the "
    "region. Unregister the region, and register it again with memory that is there"
)


def output_places(raw, foreign):
    """{index of the output: OutputPlace}.  `raw`: the record from their number on; `foreign`: the ForeignMemory.

    Raises WireError.
    """
    count = struct.unpack_from("<Q", raw)[0] if len(raw) >= 8 else 0
    if not 0 < count <= limits.OUTPUTS_MAX or 8 + 24 * count > len(raw):
        raise WireError(f"a request record says places of {count} outputs in {len(raw)} bytes")
    found = {}
    for at in range(count):
        index, place, nbytes = struct.unpack_from("<3Q", raw, 8 + 24 * at)
        share, offset = foreign.share_at(place), place & OFFSET
        if share is not None and share.handle is not None and offset + nbytes <= share.end:
            found[index] = OutputPlace(foreign, share.serial, place, nbytes)
    return found


class OutputPlace:
    """Where a client wants an output in its GPU memory.  It does not keep that: a model may keep the request."""

    __slots__ = ("_foreign", "_nbytes", "_place", "_serial")

    def __init__(self, foreign, serial, place, nbytes):
        """`serial`: of the Share; `place`: as the server knows it; `nbytes`: its room."""
        self._foreign, self._serial, self._place, self._nbytes = foreign, serial, place, nbytes

    def take(self, tensor):
        """Write a DeviceTensor there, and wait: (place, bytes).

        None when it has no room, cannot be opened here, was forgotten meanwhile, or overlaps the tensor in part: the
        server tells the client, or copies.  Raises GpuFailed.
        """
        nbytes, share = tensor.nbytes(), self._foreign.share_at(self._place)
        if nbytes > self._nbytes or share is None or share.serial != self._serial:
            return None
        try:
            memory = share.memory()
            cuda.stream(0)  # what cannot copy there is as one that cannot open it
        except CudaError as error:
            share.refuse(error)
            return None
        to, source = memory.address + (self._place & OFFSET), tensor.address()
        if 0 < abs(to - source) < nbytes:  # CUDA does not say what such a copy gives
            return None
        cuda.copy(to, source, nbytes, tensor._name, lambda: self._way(tensor, share))
        return self._place, nbytes

    def _way(self, tensor, share):
        """From which client's memory into which, and what to do."""
        for memory in self._foreign.devices.around(tensor):
            if memory.share.guarded and memory.share is not share:
                return f"from {memory.share.named()} into {share.named()}", _FREED
        return f"into {share.named()}", _TO_STAY
