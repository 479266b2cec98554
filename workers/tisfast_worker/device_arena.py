"""GPU memory that the server has lent this worker, for outputs that stay on the GPU (WIRE.md, Lent GPU memory)."""

import contextlib
import threading
import time

from tisfast_worker import cuda, limits
from tisfast_worker.control_messages import ControlClosed
from tisfast_worker.cuda import CudaError, DeviceLost, OpenedMemory, uuid
from tisfast_worker.foreign_memory import SHARE_SHIFT
from tisfast_worker.native import block_offset
from tisfast_worker.serving_context import current

FLAG_STAYS = 128  # of a request record: outputs may stay on the GPU
_LENT_SHARE = 0xFFFF  # the share id that stands for this memory
_LENT = _LENT_SHARE << SHARE_SHIFT
_NONE = "tensors of {} go to other models by way of host memory: the server has none on the GPU to lend ({})"
_UNCLOSED = (
    "lent GPU memory is not closed by the driver in {} ({}): nobody else gets it before the instance has ended"
)
_LARGE = (
    "a tensor of {} bytes of {} goes to another model by way of host memory: it has no room in the {} bytes of GPU "
    "memory that the instance has for such tensors; --cuda-memory-pool-byte-size has the server lend more"
)


class DeviceArena:
    """The memory is the server's, so it outlives this process; which part of it is in use is known here.

    A part belongs to the answer or call that names it, and is free again when the block of that has come back.  `put`
    and `settle` are of the loop's thread, or the one that holds the publisher's lock; the others come from any thread.
    An idle instance gives the memory back, and asks for some again when it next needs it.
    """

    def __init__(self, library, collect, writer, collect_held=None):
        """`collect()`: takes back blocks that the server is done with, from any thread; `collect_held()`: the same by
        who holds the publisher's lock, if there is one; `writer`: the AnswerWriter, told when the GPU is lost.

        Nothing is asked for before it is needed.
        """
        self._library, self._collect, self._writer = library, collect, writer
        self._collect_held = collect_held or collect
        self._arena, self._memory, self._nbytes = 0, None, 0
        self._ask_at = self._unopened_until = 0.0  # refused, or what was lent could not be opened: not before then
        self._uuid, self._is_unclosed = None, False
        self._lock = threading.Lock()  # of the four; never held while blocks are collected, which has locks of its own
        self._pending = []  # parts of the answer that is being written
        self._of = {}  # block of an answer or a call: its parts

    def put(self, tensor):
        """(place, bytes) of a copy of an output; None when there is no room.  Raises TritonModelException."""
        copied = self._copy(tensor, self._collect_held)
        if copied is None:
            return None
        part, offset, nbytes = copied
        self._pending.append(part)
        return _LENT | offset, nbytes

    def copy(self, tensor):
        """(part, offset, bytes) of a copy of a DeviceTensor; None when there is no room.  Raises TritonModelException.

        The part is the caller's: `keep` or `free` it.
        """
        return self._copy(tensor, self._collect)

    def _copy(self, tensor, collect):
        nbytes = tensor.nbytes()
        part = self._take(nbytes) if nbytes else 0
        if not part and nbytes and self._memory is not None:
            collect()  # small blocks are taken back by the dozen, and these hold large parts
            part = self._take(nbytes)
        if not part:
            if self._memory is not None and nbytes > self._nbytes:
                text = _LARGE.format(nbytes, current().whose, self._nbytes)
                current().log("WARN", text, "device_arena.py", 0, "large")
            return None
        offset = block_offset(part)
        try:
            to = self._memory.address + offset
            cuda.copy(to, tensor.address(), nbytes, tensor._name, _to_lent)
        except BaseException as error:
            self.free((part,))
            self._heard(error)
            raise
        return part, offset, nbytes

    def wait(self):
        """For all that the model queued on the GPU.  Raises TritonModelException."""
        try:
            cuda.wait(0)
        except DeviceLost as error:
            self._heard(error)
            raise

    def settle(self, block):
        """An answer was written: what was put belongs to its block, 0 for none."""
        parts, self._pending = self._pending, []
        if block:
            self.keep(block, parts)
        else:
            self.free(parts)

    def keep(self, block, parts):
        """They belong to this block, which the server has not seen yet."""
        if parts:
            self._of[block] = parts

    def given(self, blocks):
        """These have come back."""
        for block in blocks:
            self.free(self._of.pop(block, ()))

    def free(self, parts):
        """Nobody is told of them, or needs them any more."""
        for part in parts:
            self._library.tf_arena_give(self._arena, part)

    def _heard(self, error):
        if isinstance(error, DeviceLost):
            self._writer.lose_device(error)

    def rest(self):
        """The instance is idle, and blocks were collected: others may have what it does not use."""
        with self._lock:
            self._ask_at = self._unopened_until
            ask = current().ask
            kept = self._is_unclosed or self._memory is None
            if kept or ask is None or self._library.tf_arena_used_blocks(self._arena):
                return
            self._library.tf_arena_delete(self._arena)
            memory, self._arena, self._memory = self._memory, 0, None
            try:
                refusal = memory.close()
            except CudaError as error:  # it is the process's until that ends
                self._heard(cuda.failure(f"closing GPU memory that the server has lent failed: {error}", error))
                return
            with contextlib.suppress(ControlClosed):
                ask({"t": "gpu_memory", "back": True, "unclosed": bool(refusal)})
            if refusal:
                self._is_unclosed = True  # what it is lent next it keeps: else it would take one part after the other
                current().log("WARN", _UNCLOSED.format(current().whose, refusal), "device_arena.py", 0, "lent unclosed")

    def _take(self, nbytes):
        """A part, or 0."""
        with self._lock:
            if self._memory is None and time.monotonic() >= self._ask_at:
                self._try_to_open()
            return 0 if self._memory is None else self._library.tf_output_take(self._arena, nbytes)

    def _try_to_open(self):
        try:
            self._ask()
        finally:  # counted from the answer, which may be late: requests do not wait for the server one after the other
            if self._memory is None:
                self._ask_at = max(self._ask_at, time.monotonic() + limits.LENDING_SECONDS)

    def _ask(self):
        try:
            self._uuid = self._uuid or uuid()
            answer = current().ask({"t": "gpu_memory", "uuid": self._uuid})
            if "error" not in answer:
                self._open(answer)
                self._ask_at = 0.0
            elif not answer.get("told"):
                current().log("WARN", _NONE.format(current().whose, answer["error"]), "device_arena.py", 0, "unlent")
        except ControlClosed as error:
            current().tell({"t": "gpu_memory", "forgone": error.number})
            current().log("WARN", _NONE.format(current().whose, error), "device_arena.py", 0, "unlent")
        except CudaError as error:
            if error.is_fatal:
                return  # the process is about to end, which says why
            self._ask_at = self._unopened_until = time.monotonic() + limits.LENT_REFUSED_SECONDS
            current().tell({"t": "gpu_memory", "unopened": _LENT_SHARE, "error": str(error)})

    def _open(self, answer):
        cuda.stream(0)
        self._memory, self._nbytes = OpenedMemory(answer["handle"]), answer["bytes"]
        self._arena = self._library.tf_arena_new(self._nbytes, self._nbytes)


def _to_lent():
    """The way of a copy, see cuda.copy."""
    return "into GPU memory for another model", ""
