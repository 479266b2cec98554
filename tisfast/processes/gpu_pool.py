"""GPU memory that the server lends to workers, for tensors that go from model to model.  Layer 4 (processes).

The server owns it, so a worker that dies takes nothing away from those who still read.  Each GPU's pool
(--cuda-memory-pool-byte-size) is lent in LENT_PARTS equal parts, one to a worker.  A part is free again when nobody
refers to its file any more: neither the worker's link nor a tensor.  One that stays free goes back to the GPU, when no
worker has it open any more: CUDA does not say what becomes of memory that is freed while others have it open.  So
workers that may have parts open of a GPU that the server has lost are ended, before that is begun anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from tisfast import limits, tuning
from tisfast.errors import TisError, Unavailable
from tisfast.executor import Lane, deadline
from tisfast.limits import LENT_PARTS, LENT_UNIT_BYTES
from tisfast.native.cuda import Allocated, Cuda
from tisfast.native.cuda_driver import UUID_BYTES, CudaMissing
from tisfast.native.cuda_faces import Holder
from tisfast.native.cuda_lanes import driver_lane
from tisfast.native.cuda_sharing import HOST_INSTEAD, OUT_OF_MEMORY, CudaSharing
from tisfast.native.memory import Block, MemoryFile
from tisfast.native.region import DeviceFile

log = logging.getLogger("tisfast.processes")
Message = dict[str, Any]


class BorrowerFace(Protocol):
    """A worker's link, as the pool sees it.

    end: ends the worker; its argument completes "the instance ..."; question: the number of the newest message in which
    the worker has asked for memory, 0 when it has said that it no longer waits for that.
    """

    end: Callable[[str], None]
    question: int

    @property
    def gpu(self) -> int:
        """The GPU that its model's outputs may stay on, or types.NO_DEVICE."""

    def lend(self, memory: MemoryFile | None, *, is_open: bool = False) -> None:
        """The worker may name this memory in answers and calls from now on; None: it has given it back.

        is_open: its driver has not closed what it had, which is its own until it ends.
        """

    def closed_there(self, share: int, refusal: str) -> None:
        """The worker has closed GPU memory that it knew by this id, and was told that it knows no more.

        refusal: why its driver has not closed it, or "".
        """

    def unopened(self, share: int) -> UnopenedMemory | None:
        """The worker cannot open GPU memory that it knows by this id: it is to get copies in host memory.

        None: nobody needs that memory any more.
        """

    def name_regions(self, text: str) -> str:
        """A worker's text, with the names of the regions that it knows by their ids."""

    def copying(self, number: int, share: int, nbytes: int) -> tuple[DeviceFile, Block]:
        """The memory known by this id, and where so many bytes of it may be copied to, until `copied`."""

    def copied(self, number: int) -> None:
        """The worker has taken its copy, or it could not be made."""


class UnopenedMemory(NamedTuple):
    """What a worker cannot open.

    region: the client's that it is, "" where the server has lent it; is_its_own: to this worker.
    """

    region: str
    gpu: int
    is_its_own: bool = False

    def told(self) -> tuple[str, str]:
        """(what it is, what follows) for the log."""
        minutes = f"for {limits.LENT_REFUSED_SECONDS // 60:g} minutes"
        if self.region:
            follows = "the server copies its tensors through host memory until the region is registered again"
            return f"region '{self.region:.60}' of GPU {self.gpu}", follows
        if self.is_its_own:
            follows = f"it asks for none {minutes}, and its tensors go to other models through host memory"
            return f"memory of GPU {self.gpu} that the server has lent it", follows
        follows = f"all inputs of its model come in host memory {minutes}"
        return f"memory of GPU {self.gpu} that the server has lent to another instance", follows


class LentMemory(NamedTuple):
    """What the server has taken of a GPU to lend it: parts that instances have, parts that nobody has, bytes of one."""

    gpu: int
    lent: int
    free: int
    part_bytes: int


class _Loan(NamedTuple):
    """A part that is out.  holders: of it (Allocated); end: ends who it was lent to."""

    gpu: int
    holders: Mapping[object, Holder]
    end: Callable[[str], None]


class _Told(Unavailable):
    """The log has the reason."""


def _natural(message: Message, key: str) -> int:
    """Raises Unavailable."""
    value = message.get(key)
    if not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise Unavailable(f"a message about GPU memory has {value!r:.40} as {key!r}")
    return value


def _copy(holder: list[Any], offset: int, nbytes: int) -> None:
    """In a thread, which keeps nothing: memory is given back by the loop alone."""
    block, file = holder.pop(), holder.pop()
    try:
        file.copy_to(offset, block, nbytes)
    finally:
        del block, file  # the traceback of an error refers to this frame


class GpuPool:
    """The pools of all GPUs.

    load: makes what allocates, may raise CudaMissing; pools: bytes by the GPU's number as models know it, of others
    limits.CUDA_POOL_BYTES; sharing: what is known of CUDA IPC here; idle_seconds: how long a part is free before it
    goes back to the GPU.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        load: Callable[[], Cuda],
        pools: Mapping[int, int],
        sharing: CudaSharing,
        idle_seconds: float = tuning.ARENA_TRIM_SECONDS,
    ) -> None:
        self._loop, self._load, self._pools = loop, load, pools
        self._sharing, self._idle_seconds = sharing, idle_seconds
        self._driver: Lane | None = None
        self._cuda: Cuda | None = None
        self._devices: dict[int, int] = {}  # GPUs' numbers as the driver counts, by their numbers here
        self._free: dict[int, deque[tuple[float, Allocated]]] = {}  # since when, the longest first
        self._made: dict[int, int] = {}
        self._out: dict[int, _Loan] = {}  # by id() of a part's file
        self._coming: Counter[int] = Counter()  # parts that are being allocated
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no reference

    def lent(self) -> list[LentMemory]:
        """Of each GPU that something was lent of, by its number."""
        found = []
        for gpu in sorted(self._made):
            free = len(self._free[gpu])
            found.append(LentMemory(gpu, max(self._made[gpu] - free, 0), free, self._part_bytes(gpu)))
        return found

    def answer(
        self, message: Message, borrower: BorrowerFace, reply: Callable[[Message], None], whose: str
    ) -> None:
        """Answer a worker's message of type "gpu_memory" (workers/WIRE.md), later.  whose: it is, for the log."""
        try:
            borrower.question = _natural(message, "n")
        except Unavailable as error:
            log.warning("%s: it is passed over", error)
            return
        self._start(self._answer(borrower.question, message.get("uuid"), borrower, reply, whose))

    def forgone(self, message: Message, borrower: BorrowerFace) -> None:
        """A worker no longer waits for what it has asked for, so what it was lent then is not its own."""
        if message["forgone"] == borrower.question:
            borrower.question = 0
            borrower.lend(None)

    def unopened(self, message: Message, borrower: BorrowerFace, whose: str) -> None:
        """A worker says that it cannot open GPU memory.  whose: it is, for the log."""
        reason = str(message.get("error", ""))[: limits.TOLD_ONCE_CHARS_MAX]
        try:
            share = _natural(message, "unopened")
        except Unavailable as error:
            log.warning("%s: it is passed over", error)
            return
        memory = borrower.unopened(share)
        if memory is not None:
            what, follows = memory.told()
            is_client_s = memory.region != ""
            once = "regions that an instance cannot open" if is_client_s else "lent memory that an instance cannot open"
            self._sharing.failed(f"{whose} cannot open {what}", reason, follows, of_client=is_client_s, once=once)

    def copy(self, message: Message, borrower: BorrowerFace, reply: Callable[[Message], None], whose: str) -> None:
        """Copy some for the worker to host memory, and answer, later.  whose: see `answer`."""
        try:
            number = _natural(message, "n")
        except Unavailable as error:
            log.warning("%s: it is passed over", error)
            return
        self._start(self._copy(number, message, borrower, reply, whose))

    async def _copy(
        self, number: int, message: Message, borrower: BorrowerFace, reply: Callable[[Message], None], whose: str
    ) -> None:
        answer: Message = {"t": "answer", "n": number}
        where = ""
        try:
            share, offset, nbytes = (_natural(message, key) for key in ("copy", "offset", "bytes"))
            file, block = borrower.copying(number, share, nbytes)
            where = f"it is the client's region '{file.region:.60}', and " if file.region else ""
            kept = [file, block]
            work = partial(_copy, list(kept), offset, nbytes)
            what = f"a copy for {whose}" + (f", of region '{file.region:.60}'" if file.region else "")
            await file.lane(nbytes).call(work, limits.GPU_COPY_SECONDS_MAX, kept, what=what)
            answer["at"] = block.offset
        except TisError as error:
            borrower.copied(number)
            answer["error"] = f"{where}{error}"
        reply(answer)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, number: int, uuid: object, borrower: BorrowerFace, reply: Callable[[Message], None], whose: str
    ) -> None:
        answer: Message = {"t": "answer", "n": number}
        try:
            if not isinstance(uuid, bytes) or len(uuid) != UUID_BYTES or borrower.gpu < 0:
                raise Unavailable("the message names no GPU, or the model is on none or on several")
            lent = await self._part(borrower.gpu, uuid, borrower.end, whose)
            if borrower.question != number:
                return  # nobody would use it, nor give it back
            borrower.lend(lent)
            answer.update(handle=lent.handle, bytes=lent.nbytes)
        except _Told as error:
            answer.update(error=str(error), told=True)
        except TisError as error:
            answer["error"] = str(error)
        reply(answer)

    async def _part(self, gpu: int, uuid: bytes, end: Callable[[str], None], whose: str) -> DeviceFile:
        """A part that nobody has.  Only who needs a new one waits, and not for others' beyond the GPU's own work."""
        pool, free = self._pool_bytes(gpu), self._free.setdefault(gpu, deque())
        nbytes = self._part_bytes(gpu)
        if not nbytes:
            raise Unavailable(
                f"it lends none of GPU {gpu}: --cuda-memory-pool-byte-size={gpu}:{pool} is less than "
                f"{LENT_PARTS * LENT_UNIT_BYTES} bytes"
            )
        if free and not free[-1][1].is_lost:  # else `_recall` is about to forget them
            part = free.pop()[1]
        elif (out := self._made.get(gpu, 0) + self._coming[gpu]) < LENT_PARTS:
            self._coming[gpu] += 1
            try:
                part = await self._allocated(gpu, uuid, nbytes, whose)
                if part.is_lost:
                    del part
                    raise Unavailable(f"the server has lost GPU {gpu} just now")
                self._made[gpu] = self._made.get(gpu, 0) + 1
            finally:
                self._coming[gpu] -= 1
        else:
            raise Unavailable(
                f"all of the {pool} bytes that the server lends of GPU {gpu} are in use by {out} instances; "
                f"--cuda-memory-pool-byte-size={gpu}:BYTES sets how many it lends"
            )
        file = DeviceFile(part, gpu, part.handle)
        self._out[id(file)] = _Loan(gpu, part.holders, end)
        weakref.finalize(file, self._given_back, id(file), gpu, part)
        return file

    def _pool_bytes(self, gpu: int) -> int:
        return self._pools.get(gpu, limits.CUDA_POOL_BYTES)

    def _part_bytes(self, gpu: int) -> int:
        return self._pool_bytes(gpu) // LENT_PARTS // LENT_UNIT_BYTES * LENT_UNIT_BYTES

    async def _allocated(self, gpu: int, uuid: bytes, nbytes: int, whose: str) -> Allocated:
        if reason := self._sharing.refusal_of(uuid):
            raise _Told(reason)
        left = deadline(limits.GPU_LENDING_SECONDS_MAX)
        try:
            if self._driver is None:
                self._driver = driver_lane()
            cuda, device = await self._driver.call(partial(self._find, uuid), left())
            self._devices[gpu] = device
            await cuda.ready(device, min(left(), limits.GPU_LOST_SECONDS_MAX))
            work = partial(cuda.allocate, device, nbytes)
            return await cuda.lane(device).call(work, left(), what=f"memory to lend, first to {whose}")
        except (Unavailable, CudaMissing) as error:
            self._sharing.failed(
                f"there is no memory of GPU {gpu} for tensors between models",
                str(error),
                f"{HOST_INSTEAD}{self._remedy(gpu, str(error))}",
            )
            raise _Told(str(error)) from error

    def _remedy(self, gpu: int, reason: str) -> str:
        if OUT_OF_MEMORY not in reason:
            return ""
        return (
            f". Free memory on GPU {gpu}, or have the server lend less than {self._pool_bytes(gpu)} bytes of it: "
            f"--cuda-memory-pool-byte-size={gpu}:BYTES"
        )

    def _find(self, uuid: bytes) -> tuple[Cuda, int]:
        """In the driver's thread, as it takes long to begin."""
        if self._cuda is None:
            self._cuda = self._load()
            self._cuda.watch(self._lost)
        return self._cuda, self._cuda.number_of(uuid)

    def _given_back(self, file: int, gpu: int, part: Allocated) -> None:
        """From any thread."""
        self._out.pop(file, None)
        with suppress(RuntimeError):  # the server ends
            self._loop.call_soon_threadsafe(self._is_free, gpu, part)

    def _is_free(self, gpu: int, part: Allocated) -> None:
        if not part.is_lost:
            self._free[gpu].append((time.monotonic(), part))
            self._look_later()

    def _lost(self, device: int) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the server ends
            self._loop.call_soon_threadsafe(self._recall, device)

    def _recall(self, device: int) -> None:
        """The server has lost a GPU: its parts are none any more, and who may have one open ends."""
        for gpu in [gpu for gpu, at in self._devices.items() if at == device and gpu in self._made]:
            ends = [holder.end for _, part in self._free[gpu] for holder in part.holders.values()]
            for loan in list(self._out.values()):
                if loan.gpu == gpu:
                    ends += [loan.end, *(holder.end for holder in loan.holders.values())]
            self._free[gpu].clear()
            self._made[gpu] = 0
            for end in set(ends):
                end("was ended: the server has lost its GPU, and had lent it memory there")

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_seconds, self._look)

    def _look(self) -> None:
        """What has been free for long, and is open nowhere, goes back to the GPU."""
        self._timer = None
        until = time.monotonic() - self._idle_seconds
        for gpu, free in self._free.items():
            for _ in range(len(free)):
                since, part = free.popleft()
                if since <= until and not part.holders:
                    self._made[gpu] -= 1
                else:
                    free.append((since, part))
                del part
        if any(self._free.values()):
            self._look_later()
