"""Shared memory that clients register: register, list, unregister.  Layer 4 (operations)."""

from __future__ import annotations

import asyncio
import os
import stat
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from tisfast import limits
from tisfast.errors import AlreadyExists, BadRequest, Internal, NotFound, TisError, Unavailable, Unsupported
from tisfast.executor import Lane, Overdue
from tisfast.native.cuda import HANDLE_BYTES, HANGS, CudaMissing, DeviceMemory, Devices, Unopened, driver_lane
from tisfast.native.cuda_sharing import CudaSharing
from tisfast.native.region import DeviceFile, DeviceRegion, Region, Regions, SystemRegion

DISABLED: Final = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
RESERVED_PREFIX: Final = "triton_python_backend_shm_region_"
FOLDER: Final = "/dev/shm"
KEY_BYTES_MAX: Final = 255
"""A name in /dev/shm (NAME_MAX)."""


class Closing(NamedTuple):
    """Memory that is being closed.  whose: the GPU that does it, for errors; opens: it may be opened before."""

    done: asyncio.Future[None]
    whose: str
    opens: bool = False


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
        self.check_allowed()
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
        self.check_allowed()
        if len(raw_handle) != HANDLE_BYTES:
            raise BadRequest(
                "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t "
                f"(it has {len(raw_handle)} bytes, a handle has {HANDLE_BYTES})"
            )
        self._check_name(name)
        if not 0 <= device_id <= limits.DEVICE_MAX:
            raise BadRequest(
                f"failed to register shared memory region: invalid args (device_id {device_id} is not in 0 to "
                f"{limits.DEVICE_MAX})"
            )
        if reason := self._sharing.refusal(device_id):
            raise _unsupported(name, reason)
        coming = asyncio.ensure_future(self._register(name, raw_handle, device_id, byte_size))
        self._note(self._coming, name, Closing(coming, f"GPU {device_id}", opens=True))
        return coming

    def unregister_cuda(self, name: str) -> asyncio.Future[None]:
        """Forget one region of device memory, or with name "" all of them; what is unknown is fine.

        They are forgotten when this returns.  The future is done when their GPUs have closed them, so that clients may
        free them; those that requests use are closed later.  Raises TisError, now or later.
        """
        self.check_allowed()
        for removed in self._remove(name, cuda=True):
            self._let_go(removed.name, self._known().lane(removed.device), removed)
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
            del memory  # the error's traceback would keep it
            self._let_go(name, self._known().lane(device_id))
            raise
        del self._coming[name]

    def _is_coming(self, name: str) -> bool:
        """Whether this task is still to register it."""
        coming = self._coming.get(name)
        return coming is not None and coming.done is asyncio.current_task()

    def _let_go(self, name: str, lane: Lane, removed: _Removed | None = None) -> None:
        """Nobody here refers to the memory of this name any more: it is closed when its GPU has done so.

        removed: the region that it was; instances may have it open.
        """

        async def closed() -> None:
            if removed is not None:
                await removed.closed_by_instances()
            await lane.passed()
            await lane.passed()  # until then the thread that opened the memory may have referred to it

        self._close(name, Closing(asyncio.ensure_future(closed()), lane.whose))

    def _close(self, name: str, what: Closing) -> None:
        """Beside what is being closed under this name."""
        before = self._closing.get(name)
        if before is not None:
            both = asyncio.ensure_future(_ended(before.done, what.done))
            whose = what.whose if before.done.done() else before.whose
            what = Closing(both, whose, before.opens or what.opens)
        self._note(self._closing, name, what)

    def _known(self) -> Devices:
        """What has opened something."""
        assert self._devices is not None
        return self._devices

    @staticmethod
    def _note(names: dict[str, Closing], name: str, what: Closing) -> None:
        """Under this name until it is done; who asked for it may have gone then."""

        def done(future: asyncio.Future[None]) -> None:
            if names.get(name) is what:
                del names[name]
            if not future.cancelled():
                future.exception()

        names[name] = what
        what.done.add_done_callback(done)

    async def _closed(self, closing: dict[str, Closing]) -> None:
        until = time.monotonic() + limits.GPU_REGION_SECONDS_MAX
        late: set[asyncio.Future[None]] = set()
        while not late:
            waited = {each.done for each in closing.values() if not each.done.done()}
            if waited:
                late = (await asyncio.wait(waited, timeout=max(until - time.monotonic(), 0)))[1]
                continue
            # What was opened too late is closed behind that.
            opening = [name for name, each in closing.items() if each.opens and name in self._closing]
            closing = {name: self._closing[name] for name in opening}
            if all(each.done.done() for each in closing.values()):
                return
        names = [name for name, each in closing.items() if each.done in late]
        others = f" and {len(names) - 1} others" if names[1:] else ""
        whose = ", ".join(sorted({closing[name].whose for name in names}))
        raise Unavailable(
            f"shared memory region '{names[0]:.60}'{others} unregistered, but not closed within "
            f"{limits.GPU_REGION_SECONDS_MAX:g} s: {whose} hangs or is busy with others' work, or an instance that had "
            f"it open executes one batch for long. Do not free the memory yet; unregister again to wait again. {HANGS}"
        )

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
            lane = devices.lane(device_id)
            await devices.ready(device_id, min(left(), limits.GPU_LOST_SECONDS_MAX))
            try:
                return await lane.call(partial(devices.open, raw_handle, device_id), left())
            except Overdue:
                self._let_go(name, lane)  # the driver may still open it
                raise
        except CudaMissing as error:
            raise _unsupported(name, error) from error
        except Unopened as error:
            self._sharing.failed("a CUDA region of a client was refused", error.reason, "clients are told so")
            raise

    def check_allowed(self) -> None:
        """Raises Unsupported when clients may not register."""
        if not self._allowed:
            raise Unsupported(DISABLED)

    def _check_name(self, name: str) -> None:
        if self.table.get(name) is not None or name in self._coming:
            raise AlreadyExists(f"shared memory region '{name}' already in manager")
        if len(name.encode()) > limits.REGION_NAME_BYTES_MAX:
            raise BadRequest(
                f"failed to register shared memory region '{name:.60}...': its name has {len(name.encode())} bytes, "
                f"{limits.REGION_NAME_BYTES_MAX} is the limit"
            )
        if len(self.table) + len(self._coming) >= limits.REGIONS_MAX:
            raise Unavailable(
                f"failed to register shared memory region '{name}': {limits.REGIONS_MAX} regions are registered, which "
                "is the limit; unregister those that are no longer used"
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
        self._memory = weakref.ref(region.file.memory) if isinstance(region.file, DeviceFile) else None

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
        await asyncio.wait({future}, timeout=seconds)


def _told(future: asyncio.Future[None]) -> None:
    if not future.done():  # else it was cancelled, with who waits
        future.set_result(None)


async def _ended(*futures: asyncio.Future[None]) -> None:
    await asyncio.wait(futures)


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
