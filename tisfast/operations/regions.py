"""Shared memory that clients register: register, list, unregister.  Layer 4 (operations)."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from tisfast import limits
from tisfast.errors import AlreadyExists, BadRequest, Internal, NotFound, TisError, Unavailable, Unsupported
from tisfast.executor import Lane, Overdue
from tisfast.native.cuda import (
    HANDLE_BYTES,
    HANGS,
    OWNER_GONE,
    CudaMissing,
    DeviceMemory,
    Devices,
    Holder,
    Unopened,
    driver_lane,
)
from tisfast.native.cuda_sharing import CudaSharing
from tisfast.native.region import DeviceFile, DeviceRegion, Region, Regions, SystemRegion

log = logging.getLogger("tisfast.gpu")
DISABLED: Final = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
NO_HANDLE: Final = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
INVALID: Final = "failed to register shared memory region: invalid args"
RESERVED_PREFIX: Final = "triton_python_backend_shm_region_"
FOLDER: Final = "/dev/shm"
KEY_BYTES_MAX: Final = 255
"""A name in /dev/shm (NAME_MAX)."""


class _StaysOpen(Exception):
    """Memory that processes have not closed.  where: which, each with the driver's reason."""

    def __init__(self, where: list[str]) -> None:
        super().__init__(*where)
        self.where = where


class Closing(NamedTuple):
    """Memory that is being closed.  waits: says for what, with the remedy; opens: it may be opened before."""

    done: asyncio.Future[None]
    waits: Callable[[], str]
    opens: bool = False

    @property
    def refusals(self) -> list[str]:
        """Where it stays open, now that this is done."""
        ended = self.done.done() and not self.done.cancelled()
        error = self.done.exception() if ended else None
        return error.where if isinstance(error, _StaysOpen) else []


class ClientRegions:
    """Registered regions of both families.

    allowed: --allow-client-shm; devices: called when the first CUDA region is to be registered, may raise CudaMissing;
    gpu_of: the number by which instances know the GPU of a UUID that the driver counts otherwise; None: the driver's.
    sharing: what is known of CUDA IPC here.  `table` is what codecs look regions up in.
    """

    def __init__(
        self,
        devices: Callable[[], Devices],
        *,
        allowed: bool,
        gpu_of: Callable[[bytes, int], int] | None = None,
        sharing: CudaSharing | None = None,
    ) -> None:
        self.table = Regions()
        self._load_devices = devices
        self._devices: Devices | None = None
        self._driver: Lane | None = None
        self._coming: dict[str, Closing] = {}  # by name, while it is being registered
        self._closing: dict[str, Closing] = {}  # by name, when it has been unregistered
        self._allowed = allowed
        self._gpu_of = gpu_of
        self._sharing = CudaSharing() if sharing is None else sharing

    # ---- system

    def system_status(self, name: str) -> list[dict[str, Any]]:
        """Per region: name, key, offset, byte_size.  name "": all; raises NotFound."""
        return [
            {"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.nbytes}
            for each in self._chosen(name, cuda=False)
        ]

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Map part of the POSIX shared-memory object `key`.  Raises TisError."""
        self.check_may_register(name, "system")
        _check_key(name, key)
        self._check_name(name)
        self.table.add(SystemRegion(name, key, _open(key), offset, byte_size))

    def unregister_system(self, name: str) -> None:
        """Forget it, or with name "" all of them; what is unknown is fine.  Requests that use it keep it."""
        self.check_allowed()
        self._remove(name, cuda=False)

    # ---- CUDA

    def cuda_status(self, name: str) -> list[dict[str, Any]]:
        """Per region: name, device_id, byte_size.  name "": all; raises NotFound."""
        return [
            {"name": each.name, "device_id": each.device, "byte_size": each.nbytes}
            for each in self._chosen(name, cuda=True)
        ]

    def register_cuda(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> asyncio.Future[None]:
        """Open the memory behind a cudaIpcMemHandle_t, in a thread: its GPU may hang.  Raises TisError, now or later.

        The name is taken when this returns, so what is asked for later meets it, whatever the thread has done by then.
        """
        self.check_may_register(name, "cuda")
        if len(raw_handle) != HANDLE_BYTES:
            raise BadRequest(
                f"{NO_HANDLE} (region '{name:.60}': it has {len(raw_handle)} bytes, a handle has {HANDLE_BYTES})"
            )
        self._check_name(name)
        if reason := self._sharing.refusal(device_id):
            raise _unsupported(name, reason)
        coming = asyncio.ensure_future(self._register(name, raw_handle, device_id, byte_size))
        self._note(self._coming, name, Closing(coming, partial(_hangs, f"GPU {device_id}"), opens=True))
        return coming

    def unregister_cuda(self, name: str) -> asyncio.Future[None]:
        """Forget one region of device memory, or with name "" all of them; what is unknown is fine.

        They are forgotten when this returns.  The future is done when their GPUs have closed them, so that clients may
        free them; those that requests use are closed later.  Raises TisError, now or later.
        """
        self.check_allowed()
        for removed in self._remove(name, cuda=True):
            self._let_go(removed.name, self._known().lane(removed.device), removed.unclosed, removed)
        for each in [name] if name else list(self._coming):
            if (coming := self._coming.pop(each, None)) is not None:
                self._close(each, coming)
        return asyncio.ensure_future(self._closed({n: each for n, each in self._closing.items() if name in ("", n)}))

    async def _register(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        memory = await self._opened(name, raw_handle, device_id)
        try:
            if not self._is_coming(name):
                raise Unavailable(f"shared memory region '{name}' was unregistered while it was being registered")
            gpu = device_id if self._gpu_of is None else self._gpu_of(memory.uuid, device_id)
            self.table.add(DeviceRegion(name, memory, device_id, raw_handle, byte_size, gpu))
        except TisError:
            unclosed = memory.unclosed
            del memory  # the error's traceback would keep it
            self._let_go(name, self._known().lane(device_id), unclosed)
            raise
        del self._coming[name]

    def _is_coming(self, name: str) -> bool:
        """Whether this task is still to register it."""
        coming = self._coming.get(name)
        return coming is not None and coming.done is asyncio.current_task()

    def _let_go(self, name: str, lane: Lane, unclosed: list[str], removed: _Removed | None = None) -> None:
        """Nobody here refers to the memory of this name any more: it is closed when its GPU has done so.

        unclosed: of DeviceMemory; removed: the region that it was; instances may have it open.
        """

        async def closed() -> None:
            if removed is not None:
                await removed.closed_by_instances()
            await lane.passed()
            await lane.passed()  # until then the thread that opened the memory may have referred to it
            if unclosed:
                raise _StaysOpen(unclosed)

        def waits() -> str:
            return (removed.waits() if removed is not None else "") or _hangs(lane.whose)

        self._close(name, Closing(asyncio.ensure_future(closed()), waits))

    def _close(self, name: str, what: Closing) -> None:
        """Beside what is being closed under this name."""
        before = self._closing.get(name)
        if before is not None:
            what = _both(before, what)
        self._note(self._closing, name, what)

    def _known(self) -> Devices:
        """What has opened something."""
        assert self._devices is not None
        return self._devices

    @staticmethod
    def _note(names: dict[str, Closing], name: str, what: Closing) -> None:
        """Under this name until it is done, and a refusal until it is told; who asked for it may have gone then."""

        def done(future: asyncio.Future[None]) -> None:
            if names.get(name) is what and not what.refusals:
                del names[name]
            if not future.cancelled():
                future.exception()

        names[name] = what
        what.done.add_done_callback(done)

    async def _closed(self, closing: dict[str, Closing]) -> None:
        """Wait for these, by name.  The log says once what is waited for so long; a refusal is told once."""
        begun = time.monotonic()
        if not await self._are_closed(closing, begun + limits.GPU_REGION_TOLD_SECONDS):
            log.warning("%s: %s", _late(closing, limits.GPU_REGION_TOLD_SECONDS), _reasons(closing.values()))
            if not await self._are_closed(closing, begun + limits.GPU_REGION_SECONDS_MAX):
                raise Unavailable(
                    f"{_late(closing, limits.GPU_REGION_SECONDS_MAX)}; do not free the memory yet, and unregister "
                    f"again to wait again: {_reasons(closing.values())}"
                )
        refused = {name: each for name, each in closing.items() if each.refusals}
        for name, each in refused.items():
            if self._closing.get(name) is each:
                del self._closing[name]
        if refused:
            where = ", in ".join(sorted({text for each in refused.values() for text in each.refusals}))
            raise Internal(
                f"{_named(refused)} unregistered, but not closed: the driver refuses that in {where}. Do not free the "
                "memory before they have ended: end the server, or unload the model of an instance"
            )

    async def _are_closed(self, closing: dict[str, Closing], until: float) -> bool:
        """Whether all of them are by then, time.monotonic().  What is opened too late comes in place of its opening."""
        while True:
            waited = {each.done for each in closing.values() if not each.done.done()}
            if waited:
                if (await asyncio.wait(waited, timeout=max(until - time.monotonic(), 0)))[1]:
                    return False
                continue
            opening = [name for name, each in closing.items() if each.opens]
            later = {name: now for name in opening if (now := self._closing.get(name, closing[name])) != closing[name]}
            if not later:
                return True
            closing.update(later)

    # ---- both

    async def _opened(self, name: str, raw_handle: bytes, device_id: int) -> DeviceMemory:
        until = time.monotonic() + limits.GPU_REGION_SECONDS_MAX

        def left() -> float:
            return round(max(until - time.monotonic(), 0), 1)

        try:
            if self._devices is None:
                if self._driver is None:
                    self._driver = driver_lane()
                self._devices = await self._driver.call(self._load_devices, left())
            devices = self._devices
            if not 0 <= device_id < devices.count:
                gpus = f"{devices.count} GPU{'s' if devices.count > 1 else ''}"
                raise BadRequest(
                    f"{INVALID} (region '{name}': device_id is {device_id}, the server sees {gpus}, counted from 0)"
                )
            lane = devices.lane(device_id)
            await devices.ready(device_id, min(left(), limits.GPU_LOST_SECONDS_MAX))
            try:
                return await lane.call(partial(devices.open, raw_handle, device_id), left())
            except Overdue:
                self._let_go(name, lane, [])  # the driver may still open it
                raise
        except CudaMissing as error:
            raise _unsupported(name, error) from error
        except Unopened as error:
            if error.is_full:
                raise Unavailable(
                    f"failed to register shared memory region '{name}': {error}: GPU {device_id} has no room for what "
                    "the driver makes for it; free some there, and try again"
                ) from error
            self._sharing.failed("a CUDA region of a client was refused", str(error), "clients are told so")
            raise BadRequest(f"{INVALID} (region '{name}': {error}): {OWNER_GONE}") from error

    def unfinished(self) -> list[str]:
        """What is being registered or closed, and what that waits for: a sentence for each."""
        found = []
        for what, names in (("registered", self._coming), ("closed", self._closing)):
            by_reason: dict[str, list[str]] = {}
            for name, each in names.items():
                if not each.done.done():
                    by_reason.setdefault(each.waits(), []).append(name)
            found += [f"{_named(names)} still to be {what}: {why}" for why, names in by_reason.items()]
        return found

    def check_allowed(self) -> None:
        """Raises Unsupported when clients may not register."""
        if not self._allowed:
            raise Unsupported(DISABLED)

    def check_may_register(self, name: str, family: str) -> None:
        """family: as in paths.  Raises Unsupported, or BadRequest without a name, which stands for all where they are
        unregistered.
        """
        self.check_allowed()
        if not name:
            raise BadRequest(f"'region name' is necessary to register {family} shared memory region")

    def _check_name(self, name: str) -> None:
        if self.table.get(name) is not None or name in self._coming:
            raise AlreadyExists(f"shared memory region '{name}' already in manager")
        if len(name.encode()) > limits.REGION_NAME_BYTES_MAX:
            raise BadRequest(
                f"failed to register shared memory region '{name:.60}...': its name has {len(name.encode())} bytes, "
                f"{limits.REGION_NAME_BYTES_MAX} is the limit"
            )
        if len(self.table) + len(self._coming) + len(self._closing) >= limits.REGIONS_MAX:
            raise Unavailable(
                f"failed to register shared memory region '{name}': {limits.REGIONS_MAX} regions are registered or "
                "being closed, which is the limit; unregister those that are no longer used"
            )

    def _chosen(self, name: str, *, cuda: bool) -> list[Region]:
        if not name:
            return [each for each in self.table.all() if _is_cuda(each) == cuda]
        region = self.table.get(name)
        if region is None:
            raise NotFound(f"Unable to find {'cuda' if cuda else 'system'} shared memory region: '{name}'")
        if _is_cuda(region) != cuda:
            kinds = ("system", "CUDA") if cuda else ("CUDA", "system")
            raise NotFound(
                f"The region named '{name}' is registered as {kinds[0]} shared memory, not {kinds[1]} shared memory"
            )
        return [region]

    def _remove(self, name: str, *, cuda: bool) -> list[_Removed]:
        """What is no more registered; nothing here refers to it any more."""
        removed = []
        for each in self.table.all() if not name else [self.table.get(name)]:
            if each is not None and _is_cuda(each) == cuda:
                self.table.remove(each.name)
                removed.append(_Removed(each))
        return removed


class _Removed:
    """A region that was one until now."""

    def __init__(self, region: Region) -> None:
        self.name, self.device = region.name, region.device
        self._file = weakref.ref(region.file)
        memory = region.file.memory if isinstance(region.file, DeviceFile) else None
        self._memory = None if memory is None else weakref.ref(memory)
        self.unclosed: list[str] = [] if memory is None else memory.unclosed
        self._holders: Mapping[object, Holder] = {} if memory is None else memory.holders
        self._is_open = False

    def waits(self) -> str:
        """For the instances that it waits for now, with the remedy; "" when it waits for none."""
        names = sorted({each.name for each in self._holders.values()})
        if not self._is_open or not names:
            return ""
        others = f" and {len(names) - 1} others" if names[1:] else ""
        return (
            f"instance {names[0]}{others} had it open and closes it behind the batch that is executed, which takes "
            "long (--execution-timeout-secs ends one that hangs)"
        )

    async def closed_by_instances(self) -> None:
        """Wait until the instances that may have it open have closed it.

        What requests still use is waited for a moment only: an instance lets go of it behind its batch, or a model
        keeps it.
        """
        memory = None if self._memory is None else self._memory()
        if memory is None:
            return
        seconds = None if self._file() is None else limits.GPU_REGION_USED_SECONDS
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def gone() -> None:  # in a finaliser, in any thread
            with suppress(RuntimeError):  # the server ends
                loop.call_soon_threadsafe(_told, future)

        weakref.finalize(memory, gone).atexit = False
        del memory
        self._is_open = True
        await asyncio.wait({future}, timeout=seconds)
        self._is_open = False


def _told(future: asyncio.Future[None]) -> None:
    if not future.done():  # else it was cancelled, with who waits
        future.set_result(None)


def _both(before: Closing, what: Closing) -> Closing:
    def waits() -> str:
        return (what if before.done.done() else before).waits()

    return Closing(asyncio.ensure_future(_ended(before, what)), waits, before.opens or what.opens)


async def _ended(*closings: Closing) -> None:
    await asyncio.wait({each.done for each in closings})
    if where := [text for each in closings for text in each.refusals]:
        raise _StaysOpen(where)


def _named(names: Iterable[str]) -> str:
    first, *others = names
    return f"shared memory region '{first:.60}'" + (f" and {len(others)} others" if others else "")


def _late(closing: Mapping[str, Closing], seconds: float) -> str:
    names = [name for name, each in closing.items() if not each.done.done()]
    return f"{_named(names)} unregistered, but not closed within {seconds:g} s"


def _reasons(closings: Iterable[Closing]) -> str:
    return "; ".join(sorted({each.waits() for each in closings if not each.done.done()}))


def _hangs(whose: str) -> str:
    return f"{whose} hangs or is busy with others' work. {HANGS}"


def _unsupported(name: str, why: object) -> BadRequest:
    return BadRequest(f"failed to register CUDA shared memory region: '{name}', GPUs not supported ({why})")


def _is_cuda(region: Region) -> bool:
    return region.device >= 0


def _check_key(name: str, key: str) -> None:
    """Only names in /dev/shm itself are opened, as shm_open does."""
    bare = key.lstrip("/")
    if not bare:
        raise BadRequest(f"cannot register shared memory region '{name}' - invalid shm key '{key}'")
    if bare.startswith(RESERVED_PREFIX):
        raise BadRequest(
            f"cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved prefix "
            f"'{RESERVED_PREFIX}'"
        )
    if "/" in bare or "\0" in bare or bare in (".", "..") or len(bare.encode()) > KEY_BYTES_MAX:
        raise _unopened(key, f"a key is one name of at most {KEY_BYTES_MAX} bytes, without '/' behind the first letter")


def _open(key: str) -> int:
    """The object's descriptor.  Never a link, and never what is no file."""
    path = os.path.join(FOLDER, key.lstrip("/"))
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise _unopened(
            key, f"there is no such file in the server's {FOLDER}; in containers, client and server must share it "
            "(docker run --ipc, or one volume at /dev/shm)"
        ) from error  # fmt: skip
    except OSError as error:
        raise _unopened(key, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _unopened(key, "it is not a regular file")
    return fd


def _unopened(key: str, why: str) -> Internal:
    return Internal(f"Unable to open shared memory region: '{key}' ({why})")
