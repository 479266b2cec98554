"""GPU memory that the server lends to workers, for tensors that go from model to model.  Layer 4 (processes).

The server owns it, so a worker that dies takes nothing away from those who still read.  Each GPU's pool
(--cuda-memory-pool-byte-size) is lent in LENT_PARTS equal parts, one to a worker.  A part is free again when nobody
refers to its file any more: neither the worker's link nor a tensor.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tisfast.errors import TisError, Unavailable
from tisfast.limits import LENT_PARTS, LENT_UNIT_BYTES
from tisfast.native.cuda import UUID_BYTES, Allocated, Cuda, CudaMissing
from tisfast.native.memory import MemoryFile
from tisfast.native.region import DeviceFile

log = logging.getLogger("tisfast.processes")
Message = dict[str, Any]


class BorrowerFace(Protocol):
    """A worker's link, as the pool sees it."""

    @property
    def gpu(self) -> int:
        """The GPU that its model's outputs may stay on, or types.NO_DEVICE."""

    def lend(self, memory: MemoryFile | None) -> None:
        """The worker may name this memory in answers and calls from now on; None: it has given it back."""


class GpuPool:
    """The pools of all GPUs.

    load: makes what allocates, may raise CudaMissing; pools: bytes by the GPU's number as models know it; otherwise:
    of GPUs that are not in it.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, load: Callable[[], Cuda], pools: Mapping[int, int], otherwise: int
    ) -> None:
        self._loop, self._load, self._pools, self._otherwise = loop, load, pools, otherwise
        self._cuda: Cuda | None = None
        self._turn = asyncio.Lock()
        self._free: dict[int, deque[Allocated]] = {}
        self._made: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no reference

    def answer(self, message: Message, borrower: BorrowerFace, reply: Callable[[Message], None]) -> None:
        """Answer a worker's message of type "gpu_memory" (workers/WIRE.md), later."""
        task = self._loop.create_task(self._answer(message, borrower, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Message, borrower: BorrowerFace, reply: Callable[[Message], None]) -> None:
        answer: Message = {"t": "answer", "n": message.get("n", 0)}
        uuid = message.get("uuid")
        try:
            if not isinstance(uuid, bytes) or len(uuid) != UUID_BYTES or borrower.gpu < 0:
                raise Unavailable("the message names no GPU, or the model is on none or on several")
            async with self._turn:
                lent = await asyncio.to_thread(self._part, borrower.gpu, uuid)
            borrower.lend(lent)
            answer.update(handle=lent.handle, bytes=lent.nbytes)
        except (TisError, CudaMissing) as error:
            answer["error"] = str(error)
        reply(answer)

    def _part(self, gpu: int, uuid: bytes) -> DeviceFile:
        """A part that nobody has.  In a thread, as the driver takes long to begin; one at a time."""
        pool, free = self._pools.get(gpu, self._otherwise), self._free.setdefault(gpu, deque())
        nbytes = pool // LENT_PARTS // LENT_UNIT_BYTES * LENT_UNIT_BYTES
        if not nbytes:
            raise Unavailable(
                f"it lends none of GPU {gpu}: --cuda-memory-pool-byte-size={gpu}:{pool} is less than "
                f"{LENT_PARTS * LENT_UNIT_BYTES} bytes"
            )
        if free:
            part = free.popleft()
        elif self._made.get(gpu, 0) < LENT_PARTS:
            if self._cuda is None:
                self._cuda = self._load()
            part = self._cuda.allocate(uuid, nbytes)
            self._made[gpu] = self._made.get(gpu, 0) + 1
        else:
            raise Unavailable(
                f"all of the {pool} bytes that the server lends of GPU {gpu} are in use by {self._made.get(gpu, 0)} "
                f"instances; --cuda-memory-pool-byte-size={gpu}:BYTES sets how many it lends"
            )
        file = DeviceFile(part, gpu, part.handle)
        weakref.finalize(file, free.append, part)
        return file
