"""GPU memory that the server has lent this worker, for outputs that stay on the GPU (WIRE.md, Lent GPU memory)."""

from tisfast_worker import cuda
from tisfast_worker.control_messages import ControlClosed
from tisfast_worker.cuda import CudaError, OpenedMemory, uuid
from tisfast_worker.foreign_memory import SHARE_SHIFT
from tisfast_worker.native import block_offset
from tisfast_worker.serving_context import current

FLAG_STAYS = 128  # of a request record: outputs may stay on the GPU
_LENT = 0xFFFF << SHARE_SHIFT  # the share id that stands for this memory in answers
_NONE = (
    "outputs of this instance go to other models by way of host memory: the server has no GPU memory to lend it, or it "
    "cannot be opened here ({})"
)
_LARGE = (
    "an output of {} bytes goes to another model by way of host memory: it has no room in the {} bytes of GPU memory "
    "that this instance has for such outputs; --cuda-memory-pool-byte-size has the server lend more"
)


class DeviceArena:
    """The memory is the server's, so it outlives this process; which part of it is in use is known here.

    A part belongs to the answer that names it, and is free again when the answer's block has come back.  The loop's
    thread only, or the thread that holds the publisher's lock; but `given`, which comes from any thread.
    """

    def __init__(self, library, outputs):
        """`outputs`: the OutputArena that answers lie in.  Nothing is asked for before it is needed."""
        self._library, self._outputs = library, outputs
        self._arena, self._memory, self._nbytes = 0, None, 0
        self._refused = False
        self._pending = []  # parts of the answer that is being written
        self._of = {}  # block of an answer: its parts

    def put(self, tensor):
        """(place, bytes) of a copy of a DeviceTensor; None when there is no room.  Raises TritonModelException."""
        nbytes = tensor.nbytes()
        if not nbytes or not self._is_open():
            return None
        part = self._library.tf_output_take(self._arena, nbytes)
        if not part:
            self._outputs.collect()  # small blocks are taken back by the dozen, and these hold large parts
            part = self._library.tf_output_take(self._arena, nbytes)
        if not part:
            if nbytes > self._nbytes:
                current().log("WARN", _LARGE.format(nbytes, self._nbytes), "device_arena.py", 0, "large")
            return None
        self._pending.append(part)
        offset = block_offset(part)
        cuda.copy(self._memory.address + offset, tensor.address(), nbytes)
        return _LENT | offset, nbytes

    def settle(self, block):
        """An answer was written: what was put belongs to its block, 0 for none."""
        parts, self._pending = self._pending, []
        if block and parts:
            self._of[block] = parts
        else:
            self._free(parts)

    def given(self, blocks):
        """These have come back."""
        for block in blocks:
            self._free(self._of.pop(block, ()))

    def _free(self, parts):
        for part in parts:
            self._library.tf_arena_give(self._arena, part)

    def _is_open(self):
        if self._memory is None and not self._refused:
            self._refused = True  # also when this raises: nobody waits for the server twice
            try:
                self._open()
                self._refused = False
            except (CudaError, ControlClosed) as error:
                current().log("WARN", _NONE.format(error), "device_arena.py", 0, "unlent")
        return self._memory is not None

    def _open(self):
        answer = current().ask({"t": "gpu_memory", "uuid": uuid()})
        if "error" in answer:
            raise CudaError(answer["error"])
        cuda.stream(0)
        self._memory, self._nbytes = OpenedMemory(answer["handle"]), answer["bytes"]
        self._arena = self._library.tf_arena_new(self._nbytes, self._nbytes)
