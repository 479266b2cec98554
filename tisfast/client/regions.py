"""Large tensors in shared memory, where client and server are on one machine.  Layer 3 (client).

A request takes a region, copies its inputs into it, and has large outputs written behind them.  The region's file loses
its name as soon as the server has it open: whatever ends this process, nothing stays in /dev/shm.
"""

from __future__ import annotations

import mmap
import os
import secrets
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tisfast import limits, tuning
from tisfast.client.arrays import NUMPY, Array, array_of, item_bytes
from tisfast.client.calls import Calls, InferRequest, Scope
from tisfast.client.errors import Cancelled, ClientClosed, ConnectFailed, ConnectionLost, TimedOut
from tisfast.client.results import Result, result_of
from tisfast.errors import BadResponse, TisError, Unavailable
from tisfast.wire.buffer_tensor import BufferTensor
from tisfast.wire.client_request import WantedOutput, WantedOutputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tisfast.client.core import ClientCore
    from tisfast.client.transport import Cancel, Transport
    from tisfast.wire.client_response import InferResponse

FOLDER: Final = Path("/dev/shm")
ALIGNMENT: Final = 64
TOO_SMALL: Final = "to hold the results"
"""Of Triton's error, and ours, for an output that is larger than its place."""
UNEXPECTED: Final = "unexpected inference output"
"""Of the error for an output that the model does not have (any more)."""
UNKNOWN: Final = "Unable to find"
"""Of the error for a region that is not registered (any more)."""


class Region:
    """Memory with a file, which the server maps, too.  generation: of the server that it was registered with."""

    def __init__(self, name: str, nbytes: int, generation: int = 0) -> None:
        self.name = name
        self.nbytes = nbytes
        self.generation = generation
        self._path = FOLDER / self.name
        fd = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(fd, 0, nbytes)  # now, and not as SIGBUS when /dev/shm is full
            self.memory = mmap.mmap(fd, nbytes)
        except BaseException:
            self.unlink()
            raise
        finally:
            os.close(fd)
        self.bytes = np.frombuffer(self.memory, np.uint8)

    def unlink(self) -> None:
        """Its file has no name any more; who has it open keeps it."""
        self._path.unlink(missing_ok=True)


class OutputPlace(NamedTuple):
    """The place of one output: offset and bytes in its region."""

    offset: int
    nbytes: int


Key = tuple[object, ...]
Known = dict[str, int]
"""Bytes of the large outputs that an answer to such a request had, by name."""


class SharedMemory:
    """The regions of one client.  must: an error says why they cannot be used; else the socket is used instead."""

    def __init__(self, core: ClientCore, must: bool) -> None:
        self._core: ClientCore = weakref.proxy(core)  # no cycle: a client that is dropped ends at once
        self._must = must
        self._refused = False
        self._lock = threading.RLock()  # a signal's handler may close the client, or make a call
        self._free: list[Region] = []
        self._held: dict[str, int] = {}  # bytes of the regions that are free, used or being made
        self._doomed: list[str] = []  # regions that the server is still to be told of
        self.registered: set[str] = set()  # all that the server may have
        self._known: dict[Key, Known | None] = {}
        self._generation = 0  # of the server, one more with each start that is noticed

    def wanted(self, request: InferRequest) -> bool:
        """Its inputs are large."""
        if self._refused:
            return False
        nbytes = 0
        for tensor in request.tensors:
            nbytes += tensor.nbytes
        return nbytes >= tuning.CLIENT_SHARED_BYTES_MIN

    async def infer(
        self, request: InferRequest, timeout: float | None, retry: bool, cancel: Cancel | None
    ) -> InferResponse | Result:
        """The answer to a request."""
        deadline = monotonic() + (self._core.timeout if timeout is None else timeout)
        key: Key = (
            request.model,
            request.version,
            *[(tensor.name, tensor.datatype, tensor.shape) for tensor in request.tensors],
        )
        known = self._known.get(key) if retry and request.outputs is None else None
        inputs = sum(_aligned(tensor.nbytes) for tensor in request.tensors)
        outputs = sum(map(_aligned, known.values())) if known is not None else 0
        region = await self._take(inputs + outputs, Scope(deadline, None, cancel))
        if region is None:
            return await self._core.ask(self._core.calls.infer(request), deadline - monotonic(), retry, cancel)
        try:
            placed, places = _placed(request, region, known)
            response = await self._core.ask(self._core.calls.infer(placed), deadline - monotonic(), retry, cancel)
            arrays = [self._array(each, region, places.get(each.name)) for each in response.outputs]
        except TisError as error:
            self._doom(region.name)
            return await self._again(error, key, region, request, Scope(deadline, None, cancel), retry)
        except BaseException:
            self._doom(region.name)
            raise
        self._give(region)
        if key not in self._known and retry and request.outputs is None:
            self._learn(key, request, response)
        return result_of(response, arrays)

    async def _again(  # noqa: PLR0913, PLR0917 - what one call knows
        self, error: TisError, key: Key, region: Region, request: InferRequest, scope: Scope, retry: bool
    ) -> InferResponse:
        """What the server refused because of its regions is asked without them."""
        if isinstance(error, BadResponse):
            self._known.pop(key, None)  # it may have been of a type that the model had not before
        if isinstance(error, Unavailable | TimedOut | BadResponse):
            raise error
        if TOO_SMALL in error.message:
            self._known[key] = None  # outputs of another size each time
        elif UNEXPECTED in error.message and self._known.pop(key, None) is not None:
            pass  # the model has changed
        elif UNKNOWN in error.message and "shared memory region" in error.message:
            self._forget_all(region.generation)  # the server has started again
        else:
            raise error
        return await self._core.ask(self._core.calls.infer(request), scope.deadline - monotonic(), retry, scope.cancel)

    def _array(self, tensor: BufferTensor, region: Region, place: OutputPlace | None) -> Array:
        if tensor.region is None:
            return array_of(tensor)
        dtype = NUMPY[tensor.datatype]
        nbytes = item_bytes(tensor.datatype) * int(np.prod(tensor.shape, dtype=np.int64))
        if place is None or not _plain(tensor) or not 0 <= nbytes <= place.nbytes:
            raise BadResponse(
                f"output '{tensor.name}' of {tensor.datatype} and shape {list(tensor.shape)} lies in shared memory, "
                "where nobody asked for it: the model's outputs have changed"
            )
        return region.bytes[place.offset : place.offset + nbytes].view(dtype).reshape(tensor.shape).copy()

    def _learn(self, key: Key, request: InferRequest, response: InferResponse) -> None:
        """An answer need not have all outputs, but has none that the metadata lacks, unless the model has changed."""
        large = {
            each.name: each.nbytes
            for each in response.outputs
            if each.nbytes >= tuning.CLIENT_SHARED_TENSOR_BYTES_MIN and _plain(each)
        }
        if large and all(each.name in request.served for each in response.outputs):
            if len(self._known) >= limits.CLIENT_HEADS_MAX:
                self._known.clear()
            self._known[key] = large

    # ---- regions

    async def _take(self, nbytes: int, scope: Scope) -> Region | None:
        """A region of so many bytes or more; None: the request goes through the socket."""
        await self._unregister_doomed(scope)
        name = f"tisfast-{os.getpid()}-{secrets.token_hex(8)}"
        with self._lock:
            for region in reversed(self._free.copy()):
                if region.nbytes >= nbytes and region in self._free:  # else it is a signal's handler's by now
                    self._free.remove(region)
                    return region
            if len(self.registered.difference(self._held)) >= limits.CLIENT_REGIONS_LEFT_MAX:
                return None
            size = max(tuning.CLIENT_REGION_BYTES_MIN, 1 << (nbytes - 1).bit_length())
            held = sum(self._held.values())
            while self._free and held + size > limits.CLIENT_REGION_BYTES_MAX:
                held -= self._drop(self._free.pop(0).name)
            if held + size > limits.CLIENT_REGION_BYTES_MAX:
                return None
            self._held[name] = size
        made = None
        try:
            made = await self._make(name, size, scope)
        finally:
            if made is None:
                self._doom(name)
        return made

    async def _make(self, name: str, size: int, scope: Scope) -> Region | None:
        """None: the server does not have it.  Raises what ends the call, and errors where shared memory is a must."""
        try:
            region = Region(name, size, self._generation)
        except OSError as error:
            self._refuse(Unavailable(f"{size} bytes of shared memory cannot be had: {error}"))
            return None
        call = self._core.calls.ask("system_register", name=name, key=f"/{name}", offset=0, byte_size=size)
        self.registered.add(name)  # from now on the server may have it, whatever becomes of the call
        try:
            await self._core.ask(call, scope.deadline - monotonic(), self._must, scope.cancel)
        except (Cancelled, ClientClosed):
            raise
        except TimedOut:
            if self._must:
                raise
            return None  # the call has no time left, as its caller finds
        except (ConnectFailed, ConnectionLost) as error:
            if isinstance(error, ConnectFailed):
                self.registered.discard(name)
            if self._must:
                raise ConnectFailed(f"shared_memory=True, but no region could be registered: {error.message}") from None
            return None  # nothing was executed; the socket has its own fortune
        except TisError as error:
            self.registered.discard(name)
            self._refuse(error)
            return None
        finally:
            region.unlink()
        self.registered.add(name)  # the server may have been found to be another one meanwhile (`_forget_all`)
        return region

    def _refuse(self, error: TisError) -> None:
        """The server takes no regions, or not this one."""
        if self._must:
            error.reword(lambda text: f"shared_memory=True, but the server takes no region: {text}")
            raise error
        self._refused = not self.registered

    def _give(self, region: Region) -> None:
        with self._lock:
            self._free.append(region)

    def _doom(self, name: str) -> None:
        """Nobody uses it again: it was not made, or the server may still write into it."""
        with self._lock:
            self._drop(name)

    def _drop(self, name: str) -> int:
        if name in self.registered:
            self._doomed.append(name)
        return self._held.pop(name, 0)

    def _forget_all(self, generation: int) -> None:
        """The server has none of those that were registered when this was its generation."""
        with self._lock:
            if generation != self._generation:
                return  # another call was told, too, and what is registered by now is the new server's
            self._generation += 1
            for region in self._free:
                self._held.pop(region.name, None)
            self._free = []
            self.registered.clear()
            self._doomed.clear()

    async def _unregister_doomed(self, scope: Scope) -> None:
        """Regions of earlier calls, within the bounds of this one."""
        scope = scope._replace(deadline=min(scope.deadline, monotonic() + tuning.CLIENT_CANCEL_SECONDS))
        while self._doomed:
            try:
                name = self._doomed.pop()
            except IndexError:  # another call was faster
                return
            done = False
            try:
                done = await self._unregister(name, scope)
            finally:
                if not done and name in self.registered:
                    self._doomed.append(name)  # another time, and so when this call is cancelled
            if not done:
                return

    async def _unregister(self, name: str, scope: Scope) -> bool:
        """False: the server did not answer.  Raises Cancelled."""
        try:
            call = self._core.calls.ask("system_unregister", name=name)
            await self._core.ask(call, scope.deadline - monotonic(), retry=False, cancel=scope.cancel)
        except Cancelled:
            raise
        except (Unavailable, TimedOut):
            return False
        except TisError:
            pass  # a server that has started again knows no such region
        self.registered.discard(name)
        return True

    def forget(self) -> None:
        """In a forked child: regions and server's names are the parent's."""
        self._lock = threading.RLock()
        self._forget_all(self._generation)
        self._held.clear()

    async def close(self) -> None:
        """Unregister all."""
        with self._lock:
            self._refused = True
            self._free, self._doomed = [], []
        scope = Scope(monotonic() + tuning.CLIENT_CANCEL_SECONDS)
        for name in list(self.registered):
            if not await self._unregister(name, scope):
                return  # a server that has gone has none


def unregister_left(registered: set[str], calls: Calls, make: Callable[[], Transport], pid: int) -> None:
    """Of a client that nobody closed: at its end, or the program's.  A forked child leaves its parent's alone."""
    from tisfast.client.transport import run  # noqa: PLC0415 - when all else is torn down

    if not registered or os.getpid() != pid:
        return
    transport = make()
    deadline = monotonic() + tuning.CLIENT_CANCEL_SECONDS
    try:
        for name in list(registered):
            with suppress(TisError):  # a server that has gone has none
                run(transport.ask(calls.ask("system_unregister", name=name), deadline))
    finally:
        run(transport.close())


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _plain(tensor: BufferTensor) -> bool:
    return tensor.datatype not in ("BYTES", "BF16")


def _placed(request: InferRequest, region: Region, known: Known | None) -> tuple[InferRequest, dict[str, OutputPlace]]:
    """The request with its large tensors in the region, and the places of its outputs."""
    at = 0
    tensors = []
    for tensor in request.tensors:
        nbytes = tensor.nbytes
        if nbytes < tuning.CLIENT_SHARED_TENSOR_BYTES_MIN:
            tensors.append(tensor)
            continue
        region.bytes[at : at + nbytes] = np.frombuffer(tensor.buffer(), np.uint8)
        tensors.append(BufferTensor.in_region(tensor.name, tensor.datatype, tensor.shape, region.name, nbytes, at))
        at += _aligned(nbytes)
    if known is None:
        return request._replace(tensors=tensors), {}
    places: dict[str, OutputPlace] = {}
    wanted: list[Any] = []
    for name in request.served:  # all, as a request without places has them
        nbytes = known.get(name, 0)
        if nbytes == 0:
            wanted.append(WantedOutput(name))
            continue
        places[name] = OutputPlace(at, nbytes)
        wanted.append(WantedOutput(name, region=region.name, nbytes=nbytes, offset=at))
        at += _aligned(nbytes)
    return request._replace(tensors=tensors, outputs=WantedOutputs(wanted)), places
