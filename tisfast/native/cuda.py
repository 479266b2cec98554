"""Device memory of other processes, opened by CUDA IPC handle, through the driver's library.  Layer 1 (native).

The library is loaded when the first handle comes, never at import: a server without a GPU does not look for one.  The
two protocols of cuda_faces are all that the rest of the server knows of GPUs; the tests put their own memory behind
them.

A GPU may hang, and with it every call that waits for it.  So all calls for one GPU are made by two threads of its own
(`Lanes`), one for short copies and one for all the rest: nobody else waits, neither the loop nor other GPUs.

GIL: ctypes releases it around every call.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final

from tisfast import tuning
from tisfast.errors import Internal, Unavailable
from tisfast.executor import Lane
from tisfast.native.cuda_driver import LIBRARY, POINTER, CudaMissing, Driver, Failed, Handle
from tisfast.native.cuda_faces import By, DeviceMemory, Gone, Holder, Refusal, Unclosed, Unopened, Waits, have_ended
from tisfast.native.cuda_lanes import HANGS, THE_DRIVER, GpuCondition, Lanes, hangs

log = logging.getLogger("tisfast.gpu")
_LAZY_PEER_ACCESS: Final = 1
_NON_BLOCKING: Final = 1
_ENDS: Final = ("cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2")
"""They end a context with all that is in it: however often it was retained, and by giving back the last hold on it."""
_TO_STAY: Final = (
    ". If the client has freed this memory, or has ended: it must keep the memory until it has unregistered the "
    "region. Unregister the region, and register it again with memory that is there"
)
"""What to do when a copy of a client's memory fails."""


class _Lost(Failed):
    """Its context was lost in another call."""


class _Device:
    """One GPU: its primary context, kept, and streams of our own for short and long copies.

    over: done when it is lost, and the thread of long calls has ended its context, or the driver has refused that.
    """

    def __init__(self, driver: Driver, number: int, lanes: Lanes, on_lost: Callable[[], None]) -> None:
        """on_lost: called, in any thread, when a call has found the context lost.

        Raises Failed, and nothing of it stays then.
        """
        self._driver, self._name, self.lanes = driver, lanes.whose, lanes
        self._on_lost = on_lost
        self.lost, self._losing = "", threading.Lock()
        self._under_way: list[str] = []  # uses of the context
        self._lent: dict[int, dict[object, Holder]] = {}  # `Allocated`, by where each is: its holders
        self.over: Future[None] = Future()
        self._is_reset, self._resetting = False, threading.Lock()
        # Of what is open until the context goes, while somebody may ask for it.
        self._left: weakref.WeakValueDictionary[int, Unclosed] = weakref.WeakValueDictionary()
        self.gone: asyncio.Future[None] | None = None  # the same on the loop, once for all that wait
        self._kept: set[str] = set()  # calls that did not give memory back, which the log has
        device = self._number = driver.device(number)
        self.uuid = driver.uuid(device)
        self._context, self._short, self._long = (ctypes.c_void_p() for _ in range(3))
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        try:  # not by `call`: what was never used is not lost
            driver.call("cuCtxSetCurrent", self._context)
            for stream in (self._short, self._long):
                driver.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        except Failed:
            for each in _ENDS:
                with suppress(Failed):  # the first reason is told
                    driver.call(each, device)
            raise

    @contextmanager
    def used(self, what: str) -> Iterator[None]:
        """In the context, by `what`, in any thread: CUDA forbids that it is reset meanwhile.  Raises _Lost."""
        with self._losing:
            self.check_kept()
            self._under_way.append(what)
        try:
            yield
        finally:
            with self._losing:
                self._under_way.remove(what)
                ends = self.lost and not self._under_way
            if ends:
                self.lanes.long.post(self._end)

    def check_kept(self) -> None:
        """Raises _Lost."""
        if self.lost:
            raise _Lost(f"the server lost {self._name} in an earlier call ({self.lost})")

    def call(self, name: str, *arguments: Any) -> None:
        """A call in this device's context, which it may find lost.  Raises Failed."""
        with self.used(f"{name}{self.lanes.purpose}"):
            self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            self._driver.call("cuCtxSetCurrent", self._context)
            self._driver.call(name, *arguments)
        except Failed as error:
            if error.is_fatal:
                self._lose(str(error))
            raise

    def _lose(self, reason: str) -> None:
        """Both threads may find it at one moment."""
        with self._losing:
            if self.lost:
                return
            self.lost = reason
        self.lanes.losses.lost(self.lanes.doing, reason)
        self._on_lost()

    def copy(self, name: str, to: int, source: int, nbytes: int, *of: _Memory) -> None:
        """of: what is at its ends, and not in the host.  Raises Internal."""
        stream = self._short if nbytes <= tuning.SHORT_GPU_COPY_BYTES_MAX else self._long
        devices = {each.on for each in of}
        what = f"a copy of {nbytes} bytes{self.lanes.purpose}"
        try:
            with ExitStack() as uses:
                for each in devices:
                    uses.enter_context(each.used(what))
                self._call(name, to, source, nbytes, stream)
                self._call("cuStreamSynchronize", stream)
                for each in devices:
                    each.check_kept()  # else nobody knows what was copied
        except Failed as error:
            remedy = next((each.remedy for each in of if each.remedy), "")
            if isinstance(error, _Lost):
                remedy = "; regions of before that must be unregistered and registered again"
            elif error.is_fatal:
                remedy += f". The server has lost {self._name}: unregister all regions there, and register them again"
            elif error.is_full:
                remedy = f". {self._name} has no room for what the driver needs: free memory there, and try again"
            raise Internal(f"copying {nbytes} bytes of GPU memory failed: {error}{remedy}") from error

    def closes(self, memory: _Opened, base: int) -> Callable[[], object]:
        """Close what is open at `base` when nobody refers to `memory` any more; its `unclosed` has a refusal.

        Gives what does so at once.  At the end of the process the driver does that itself.
        """
        return self._at_end_of(memory, partial(self._close, base, memory.unclosed))

    def lends(self, memory: Allocated, base: int) -> Callable[[], object]:
        """The same of memory that others may have open: while it is there, a lost context is not reset."""
        self._lent[base] = memory.holders
        return self._at_end_of(memory, partial(self._take_back, base))

    def _at_end_of(self, memory: _Memory, work: Callable[[], None]) -> Callable[[], object]:
        ending = weakref.finalize(memory, _let_go, self.lanes, work, self.lanes.doing, memory.gone)
        ending.atexit = False
        return ending

    def _close(self, base: int, unclosed: Unclosed) -> None:
        refusal = self._give_back("cuIpcCloseMemHandle", base)
        if refusal and not self._is_reset:
            unclosed[self] = Refusal(By.SERVER, "the server", refusal)
            self._left[id(unclosed)] = unclosed
            self._end()

    def _take_back(self, base: int) -> None:
        self._give_back("cuMemFree_v2", base)
        del self._lent[base]
        self._end()

    def _end(self) -> None:
        """A lost context goes, with all that is open there, when it is not used, and others have nothing of it open."""
        if not self.lost or self._lent or self._under_way:
            return
        try:
            self.reset()
        except Failed as error:
            self.lanes.losses.fails(str(error), is_full=error.is_full)
            for unclosed in list(self._left.values()):
                unclosed[self] = Refusal(By.SERVER, "the server", str(error))
        if not self.over.done():
            self.over.set_result(None)

    def _give_back(self, name: str, base: int) -> str:
        """Why the driver refuses it; "" when it is done."""
        try:
            self.call(name, base)
        except Failed as error:
            if not self.lost and name not in self._kept:
                self._kept.add(name)
                log.warning(
                    "%s does not give memory back (%s): that memory stays in use until the server ends. This is said "
                    "once for each GPU and call, and there may be more such memory later", self.lanes.whose, error,
                )  # fmt: skip
            return str(error)
        return ""

    @property
    def stays(self) -> str:
        """Why a lost context must stay; "" where it need not."""
        lent, under_way = len(self._lent), list(self._under_way)
        if not self.lost or not (lent or under_way):
            return ""
        lost = f"the server has lost {self._name} in an earlier call ({self.lost}), and "
        if under_way:
            return f"{lost}another one there has not ended ({under_way[0]}): it begins anew when that has"
        parts, are = ("1 part", "is") if lent == 1 else (f"{lent} parts", "are")
        lost += f"{parts} of memory that it lent there {are} still in use: it begins anew when "
        if lingering := self._lingering:
            return f"{lost}{have_ended(lingering)}"
        return f"{lost}the instances that have them have ended, as they were told to"

    @property
    def _lingering(self) -> list[str]:
        """The killed processes that have not ended, and have what it lent."""
        holders = [each for holders in list(self._lent.values()) for each in list(holders.values())]
        return sorted({each.lingers for each in holders if each.lingers})

    def check_anew(self) -> None:
        """Raises Unavailable while its lost context must stay."""
        if why := self.stays:
            again = "" if self._lingering else "Try again in some seconds. "
            raise Unavailable(f"{why}. {again}{HANGS}")

    def reset(self) -> None:
        """A lost context makes room for a new one.  Raises Failed."""
        with self._resetting:
            if not self._is_reset:
                for each in _ENDS:
                    self._driver.call(each, self._number)
                self._is_reset = True
        for unclosed in list(self._left.values()):
            unclosed.pop(self, None)
        self._left.clear()


def _let_go(lanes: Lanes, work: Callable[[], None], what: str, gone: Gone) -> None:
    """what: it was made for."""
    lanes.long.post(work, what)
    gone.tell()


class _Memory:
    """A DeviceMemory that somebody keeps, from `base` on."""

    is_lent = False
    remedy = ""  # of a copy that fails

    def __init__(self, device: _Device, base: int, nbytes: int) -> None:
        self.on, self._base, self.nbytes = device, base, nbytes
        self.uuid: bytes = device.uuid
        self.holders: dict[object, Holder] = {}
        self.unclosed = Unclosed()
        self.gone = Gone()

    @property
    def is_lost(self) -> bool:
        """See DeviceMemory."""
        return bool(self.on.lost)

    def lane(self, nbytes: int) -> Lane:
        """See DeviceMemory."""
        return self.on.lanes.of(nbytes)

    def to_host(self, offset: int, address: int, nbytes: int) -> None:
        """See DeviceMemory."""
        self.on.copy("cuMemcpyDtoHAsync_v2", address, self._base + offset, nbytes, self)

    def from_host(self, offset: int, address: int, nbytes: int) -> None:
        """See DeviceMemory."""
        self.on.copy("cuMemcpyHtoDAsync_v2", self._base + offset, address, nbytes, self)

    def from_device(self, offset: int, source: _Memory, start: int, nbytes: int) -> None:
        """See DeviceMemory.  By way of the host where the two overlap: CUDA does not say what a copy gives then."""
        to, at = self._base + offset, source._base + start
        if 0 < abs(to - at) < nbytes:
            crossing = ctypes.create_string_buffer(nbytes)
            source.to_host(start, ctypes.addressof(crossing), nbytes)
            self.from_host(offset, ctypes.addressof(crossing), nbytes)
        else:
            self.on.copy("cuMemcpyDtoDAsync_v2", to, at, nbytes, self, source)


@contextmanager
def _closed_unless_whole(close: Callable[[], object], unclosed: Unclosed | None = None) -> Iterator[None]:
    """Memory whose making fails here is closed now: the error refers to what has been made of it.

    unclosed: says behind that where it was not closed.
    """
    try:
        yield
    except Failed as error:
        error.unclosed = unclosed
        close()
        raise


class _Opened(_Memory):
    """Another process' memory."""

    remedy = _TO_STAY

    def __init__(self, device: _Device, handle: bytes) -> None:
        base, start, size = POINTER(), POINTER(), ctypes.c_size_t()
        device.call("cuIpcOpenMemHandle_v2", ctypes.byref(base), Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
        super().__init__(device, base.value, 0)
        with _closed_unless_whole(device.closes(self, base.value), self.unclosed):
            device.call("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(size), base)
        self.nbytes = start.value + size.value - base.value


class Allocated(_Memory):
    """Memory of this process, with the handle by which others open it; freed with the last reference.

    Its holders have it open beside who it was lent to.
    """

    is_lent = True

    def __init__(self, device: _Device, nbytes: int) -> None:
        base, handle = POINTER(), Handle()
        device.call("cuMemAlloc_v2", ctypes.byref(base), nbytes)
        super().__init__(device, base.value, nbytes)
        with _closed_unless_whole(device.lends(self, base.value)):
            device.call("cuIpcGetMemHandle", ctypes.byref(handle), base)
        self.handle = bytes(handle.reserved)


def _visible() -> str:
    """What CUDA_VISIBLE_DEVICES leaves this process, behind what CUDA says of its GPUs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible:.60}"


class Cuda:
    """This machine's GPUs.  Raises CudaMissing when there is none that can be used."""

    def __init__(self, path: str = LIBRARY) -> None:
        self._driver = Driver(path)
        count = ctypes.c_int()
        try:
            self._driver.call("cuInit", 0)
            self._driver.call("cuDeviceGetCount", ctypes.byref(count))
        except Failed as error:
            raise CudaMissing(f"the NVIDIA driver offers no GPU{_visible()}: {error}") from error
        if count.value == 0:
            raise CudaMissing(f"the NVIDIA driver sees no GPU{_visible()}")
        self.count = count.value
        self._devices: dict[int, _Device] = {}
        self._on_lost: Callable[[int], None] = _nobody_lends
        self._lanes = {number: Lanes(number, self._gpu_uuid(number)) for number in range(self.count)}
        self._turns = {number: threading.Lock() for number in range(self.count)}

    def lane(self, device: int) -> Lane:
        """See Devices; `allocate` and `uuid_of` are called there, too."""
        return self._lanes[device].long

    def watch(self, on_lost: Callable[[int], None]) -> None:
        """on_lost: called, in any thread, with the number of a GPU that was lost, of which something may be lent."""
        self._on_lost = on_lost

    async def ready(self, device: int, seconds: float | None) -> None:
        """See Devices; `allocate` wants it, too."""
        known = self._devices.get(device)
        if known is not None and known.lost and not known.over.done():
            if known.gone is None:
                known.gone = asyncio.wrap_future(known.over)
            await asyncio.wait({known.gone}, timeout=seconds)
            if not known.over.done():
                known.check_anew()
                raise Unavailable(str(self.waits(device)))

    def waits(self, device: int) -> Waits:
        """See Devices."""
        known = self._devices.get(device)
        stays = "" if known is None else known.stays
        return Waits((stays,), (HANGS,)) if stays else hangs(self._lanes[device].whose)

    @property
    def busy(self) -> list[str]:
        """The GPUs that a call is under way for, which may never end."""
        return [lanes.whose for lanes in self._lanes.values() if lanes.are_busy]

    def open(self, handle: bytes, device: int) -> DeviceMemory:
        """See Devices."""
        try:
            on = self._device(device)
        except Failed as error:
            if error.is_full:
                raise Unopened(str(error), is_full=True) from error
            raise Unavailable(
                f"the server cannot use GPU {device}: {error}. If that goes on, start the server again: a GPU that it "
                "has lost may need that"
            ) from error
        try:
            return _Opened(on, handle)
        except Failed as error:
            lost = bool(on.lost)
            raise Unopened(str(error), is_full=error.is_full, is_lost=lost, unclosed=error.unclosed) from error

    def uuid_of(self, device: int) -> bytes:
        """The UUID of a GPU by its number here.  Raises Unavailable."""
        try:
            return self._driver.uuid(self._driver.device(device))
        except Failed as error:
            raise Unavailable(f"there is no GPU {device}: {error}") from error

    def _gpu_uuid(self, device: int) -> str:
        """See Driver; "" where the driver does not tell."""
        with suppress(Failed):
            return self._driver.gpu_uuid(self._driver.device(device))
        return ""

    def number_of(self, uuid: bytes) -> int:
        """The number here of the GPU with this UUID.  Waits for no GPU.  Raises Unavailable."""
        for device in range(self.count):
            if self.uuid_of(device) == uuid:
                return device
        raise Unavailable(f"the server does not see the GPU {uuid.hex()}: it cannot lend memory there")

    def allocate(self, device: int, nbytes: int) -> Allocated:
        """Memory on a GPU by its number here, for other processes to open.  Raises Unavailable."""
        try:
            return Allocated(self._device(device), nbytes)
        except Failed as error:
            raise Unavailable(f"allocating {nbytes} bytes of GPU memory failed: {error}") from error

    def conditions(self) -> list[GpuCondition]:
        """Of the GPUs that were used, or tried.  Waits for none."""
        return [lanes.condition for lanes in self._lanes.values() if lanes.are_used]

    def _device(self, number: int) -> _Device:
        """One whose context was lost is begun anew.  Raises Failed, Unavailable."""
        lanes = self._lanes[number]
        with self._turns[number]:
            known = self._devices.get(number)
            try:
                if known is not None and known.lost:
                    known.check_anew()
                    known.reset()
                    del self._devices[number]
                if number not in self._devices:
                    made = _Device(self._driver, number, lanes, lambda: self._on_lost(number))
                    lanes.losses.works()  # before somebody else can find it lost
                    self._devices[number] = made
            except Failed as error:
                lanes.losses.fails(str(error), is_full=error.is_full)
                raise
            return self._devices[number]


def _nobody_lends(number: int) -> None:
    """Nobody watches, so nothing of this GPU is lent."""


class OneCuda:
    """Makes a Cuda when it is first called, and gives that one from then on.  From any thread; raises CudaMissing.

    A process has one context of each GPU.  Who finds it lost must know all that was made of it, and begin it anew.
    """

    def __init__(self) -> None:
        self._made: Cuda | None = None
        self._turn = threading.Lock()

    def __call__(self) -> Cuda:
        """The one."""
        with self._turn:
            if self._made is None:
                self._made = Cuda()
            return self._made

    def conditions(self) -> list[GpuCondition]:
        """See Cuda; of none before the driver has begun."""
        return [] if self._made is None else self._made.conditions()

    @property
    def busy(self) -> list[str]:
        """What a call of the driver's is under way for, which may never end."""
        if self._turn.locked():
            return [THE_DRIVER]
        return [] if self._made is None else self._made.busy
