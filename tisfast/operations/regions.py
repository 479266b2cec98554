"""Shared memory that clients register: register, list, unregister.  Layer 4 (operations)."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tisfast import limits
from tisfast.errors import AlreadyExists, BadRequest, Internal, NotFound, TisError, Unavailable, Unsupported
from tisfast.executor import Lane, Overdue, deadline
from tisfast.native.cuda_driver import CudaMissing
from tisfast.native.cuda_faces import OWNER_GONE, DeviceMemory, Devices, Unclosed, Unopened
from tisfast.native.cuda_lanes import driver_lane
from tisfast.native.cuda_sharing import CudaSharing
from tisfast.native.region import DeviceFile, DeviceRegion, Region, Regions, SystemRegion
from tisfast.operations.memory_closing import Closer, Closing, Coming, closing_of
from tisfast.operations.region_closings import Closings
from tisfast.operations.region_words import named
from tisfast.operations.slices import Pieces
from tisfast.types import HANDLE_BYTES

DISABLED: Final = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
NO_HANDLE: Final = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
INVALID: Final = "failed to register shared memory region: invalid args"
RESERVED_PREFIX: Final = "triton_python_backend_shm_region_"
FOLDER: Final = "/dev/shm"
KEY_BYTES_MAX: Final = 255
"""A name in /dev/shm (NAME_MAX)."""


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
        self._coming: dict[str, Coming] = {}  # by name, while it is being registered
        self._registering: set[asyncio.Future[None]] = set()  # that have begun: to cancel another one tells nobody why
        self._pieces = Pieces()
        self._closings = Closings(self._pieces)
        self._closer: Closer | None = None
        self._is_ended = False
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
        self.table.add(SystemRegion(name, key, _open(name, key), offset, byte_size))

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
                f"{NO_HANDLE} (region '{name:.60}': it has {len(raw_handle)} bytes, a handle has {HANDLE_BYTES}; HTTP "
                "takes them in base64, gRPC as they are)"
            )
        self._check_name(name)
        if reason := self._sharing.refusal(device_id):
            raise _unsupported(name, reason)
        if self._is_ended:
            raise _ended(name, device_id)
        coming = self._coming[name] = Coming(f"GPU {device_id}")
        coming.done = asyncio.ensure_future(self._register(coming, name, raw_handle, device_id, byte_size))
        coming.done.add_done_callback(partial(self._has_come, name, coming))
        return coming.done

    def unregister_cuda(self, name: str) -> asyncio.Future[None]:
        """Forget one region of device memory, or with name "" all of them; what is unknown is fine.

        They are forgotten when this returns.  The future is done when their GPUs have closed them, so that clients may
        free them; those that requests use are closed later.  Raises TisError, now or later.
        """
        self.check_allowed()
        removed: dict[str, Region | Coming] = {**self._remove(name, cuda=True)}
        if not name:
            removed.update(self._coming)
            self._coming = {}
        elif (coming := self._coming.pop(name, None)) is not None:
            removed[name] = coming
        make = partial(self._closing, removed)
        if name and removed:
            self._closings.add(closing_of(name, make))
        elif removed:
            self._closings.add_all(removed, make)
        return self._closings.closed(name)

    def _closing(self, removed: dict[str, Region | Coming], name: str) -> Closing:
        """Of one of these, which is none any more."""
        what = removed.pop(name)
        if isinstance(what, Coming):
            return what.unregistered(name)
        left = [what]
        del what
        return self._known().closed(left)

    async def _register(self, coming: Coming, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        if self._is_ended:
            raise _ended(name, device_id)
        self._registering.add(coming.done)
        memory = None
        try:
            memory = await self._opened(coming, name, raw_handle, device_id)
        except asyncio.CancelledError:
            if not self._is_ended:
                raise
        if memory is None:  # raised here, as the traceback of the other error keeps what is opened later
            raise _ended(name, device_id)
        try:
            if self._coming.get(name) is not coming:
                raise Unavailable(f"shared memory region '{name}' was unregistered while it was being registered")
            gpu = device_id if self._gpu_of is None else self._gpu_of(memory.uuid, device_id)
            self.table.add(DeviceRegion(name, memory, device_id, raw_handle, byte_size, gpu))
            self._closings.used_again(name)
        except TisError:
            unclosed = memory.unclosed
            del memory  # the error's traceback would keep it
            coming.closing = self._known().in_vain(name, device_id, [unclosed])
            raise
        del self._coming[name]

    def _has_come(self, name: str, coming: Coming, done: asyncio.Future[None]) -> None:
        """A registration is over.  Who asked for it may have gone."""
        self._registering.discard(done)
        if self._coming.get(name) is coming:  # else it was unregistered, or is one
            del self._coming[name]
            if coming.closing is not None:
                self._closings.add(coming.closing)

    def _known(self) -> Closer:
        """Of what has opened something."""
        assert self._closer is not None
        return self._closer

    # ---- both

    async def _opened(self, coming: Coming, name: str, raw_handle: bytes, device_id: int) -> DeviceMemory:
        left = deadline(limits.GPU_REGION_SECONDS_MAX)
        try:
            if self._devices is None:
                if self._driver is None:
                    self._driver = driver_lane()
                self._devices = await self._driver.call(self._load_devices, left())
            devices = self._devices
            if self._closer is None:
                self._closer = Closer(devices, self._pieces)
            if not 0 <= device_id < devices.count:
                gpus = f"{devices.count} GPU{'s' if devices.count > 1 else ''}"
                known = "0" if devices.count == 1 else f"0 to {devices.count - 1}"
                raise BadRequest(
                    f"{INVALID} (region '{name}': device_id is {device_id}, the server sees {gpus}, so it may be "
                    f"{known})"
                )
            coming.waits = partial(devices.waits, device_id)
            lane = devices.lane(device_id)
            await devices.ready(device_id, min(left(), limits.GPU_LOST_SECONDS_MAX))
            unclosed: list[Unclosed] = []

            def opened() -> DeviceMemory:
                try:
                    memory = devices.open(raw_handle, device_id)
                except Unopened as error:
                    if error.unclosed is not None:
                        unclosed.append(error.unclosed)
                    raise
                unclosed.append(memory.unclosed)
                return memory

            try:
                whole = limits.GPU_REGION_SECONDS_MAX
                return await lane.call(opened, left(), of=whole, what=f"region '{name:.60}'")
            except (Overdue, asyncio.CancelledError):
                coming.closing = self._known().in_vain(name, device_id, unclosed)  # the driver may still open it
                raise
            except Unopened:
                if unclosed:
                    coming.closing = self._known().in_vain(name, device_id, unclosed)
                raise
        except CudaMissing as error:
            raise _unsupported(name, error) from error
        except Unopened as error:
            if error.is_full:
                raise Unavailable(
                    f"failed to register shared memory region '{name}': {error}: GPU {device_id} has no room for what "
                    "the driver makes for it; free some there, and try again"
                ) from error
            if error.is_lost:
                raise Unavailable(
                    f"failed to register shared memory region '{name}': {error}. The server has to begin GPU "
                    f"{device_id} anew, and does so when a region is registered there: try again"
                ) from error
            what = f"region '{name:.60}' of GPU {device_id} was refused"
            self._sharing.failed(what, str(error), "its client is told so", of_client=True, once="refused regions")
            raise BadRequest(f"{INVALID} (region '{name}': {error}): {OWNER_GONE}") from error
        except Unavailable as error:
            remedy = ". Unregister it before you free the memory: the GPU may still open it"
            late = "" if coming.closing is None else remedy
            raise Unavailable(f"failed to register shared memory region '{name}': {error.message}{late}") from None

    def end(self) -> None:
        """The server ends, and its connections wait for answers: who registers or unregisters is told in a moment."""
        asyncio.get_running_loop().call_later(limits.GPU_REGION_END_SECONDS, self._tell_end)

    def _tell_end(self) -> None:
        self._is_ended = True
        self._closings.end()
        for each in self._registering:
            each.cancel()

    def unfinished(self) -> list[str]:
        """What is being registered or closed, and what that waits for: a sentence for each."""
        waiting = {
            "registered": [(name, str(each.waits())) for name, each in self._coming.items() if not each.done.done()],
            "closed": self._closings.unfinished(),
        }
        found = []
        for what, each in waiting.items():
            by_reason: dict[str, dict[str, None]] = {}
            for name, why in each:
                by_reason.setdefault(why, {})[name] = None
            found += [f"{named(names)} still to be {what}: {why}" for why, names in by_reason.items()]
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
        known = self.table.get(name)
        if known is not None:
            lost = isinstance(known.file, DeviceFile) and known.file.memory.is_lost
            why = f": the server has lost GPU {known.device} since; unregister the region first" if lost else ""
            raise AlreadyExists(f"shared memory region '{name}' already in manager{why}")
        if name in self._coming:
            raise AlreadyExists(f"shared memory region '{name}' already in manager: it is being registered")
        if len(name.encode()) > limits.REGION_NAME_BYTES_MAX:
            raise BadRequest(
                f"failed to register shared memory region '{name:.60}...': its name has {len(name.encode())} bytes, "
                f"{limits.REGION_NAME_BYTES_MAX} is the limit"
            )
        free = limits.REGIONS_MAX - len(self.table) - len(self._coming)
        if len(self._closings) >= free and self._closings.tidied() >= free:
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

    def _remove(self, name: str, *, cuda: bool) -> dict[str, Region]:
        """Those that are none any more, by name; nothing here refers to them."""
        if not name:
            return self.table.take(cuda)
        region = self.table.get(name)
        if region is None or _is_cuda(region) != cuda:
            return {}
        self.table.remove(name)
        return {name: region}


def _ended(name: str, device_id: int) -> Unavailable:
    return Unavailable(
        f"failed to register shared memory region '{name}': the server ends, and GPU {device_id} has not opened the "
        "memory yet. Free the memory when the server has ended"
    )


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
        why = f"a key is one name of at most {KEY_BYTES_MAX} bytes, without '/' behind the first letter"
        raise _unopened(name, key, why)


def _open(name: str, key: str) -> int:
    """The object's descriptor.  Never a link, and never what is no file.  name: of the region, for errors."""
    path = os.path.join(FOLDER, key.lstrip("/"))
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise _unopened(
            name, key, f"there is no such file in the server's {FOLDER}; in containers, client and server must share "
            "it (docker run --ipc, or one volume at /dev/shm)"
        ) from error  # fmt: skip
    except OSError as error:
        raise _unopened(name, key, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _unopened(name, key, "it is not a regular file")
    return fd


def _unopened(name: str, key: str, why: str) -> Internal:
    return Internal(f"Unable to open shared memory region: '{key}' (region '{name:.60}': {why})")
