"""Named shared memory of a test, gone at its end; and a GPU made of host memory."""

from __future__ import annotations

import ctypes
import os
import uuid
from pathlib import Path

from tisfast.errors import Internal
from tisfast.executor import Lane
from tisfast.native.cuda_faces import Gone, Unopened, Waits
from tisfast.native.cuda_lanes import hangs


class ShmFile:
    """A file in /dev/shm, as a client's shm_open makes it."""

    def __init__(self, data: bytes = b"") -> None:
        self.key = f"/tisfast_test_{os.getpid()}_{uuid.uuid4().hex}"
        self.path = Path("/dev/shm") / self.key[1:]
        self.path.write_bytes(data)

    def open(self) -> int:
        return os.open(self.path, os.O_RDWR)

    def truncate(self, nbytes: int) -> None:
        os.truncate(self.path, nbytes)

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    def __enter__(self) -> ShmFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)


LANE = Lane(1024, "tisfast-host-device", "the host", "")
"""Of all that is here."""


class HostDevice:
    """cuda_faces.Devices without a GPU: a handle is a name padded with zeros."""

    def __init__(self, **memories: bytes) -> None:
        self.memories = {name: bytearray(data) for name, data in memories.items()}
        self.open_count, self.count = 0, 1
        self.fails = ""  # what copies are refused with

    def handle(self, name: str) -> bytes:
        return name.encode().ljust(64, b"\0")

    def lane(self, device: int) -> Lane:
        return LANE

    async def ready(self, device: int, seconds: float | None) -> None:
        pass

    def waits(self, device: int) -> Waits:
        return hangs(self.lane(device).whose)

    def open(self, handle: bytes, device: int) -> HostMemory:
        name = handle.rstrip(b"\0").decode()
        if name not in self.memories or device != 0:
            raise Unopened("no such handle")
        return HostMemory(self, self.memories[name])


class HostMemory:
    """cuda_faces.DeviceMemory without a GPU."""

    is_lent = is_lost = False

    def __init__(self, device: HostDevice, data: bytearray) -> None:
        self._device, self._data, self.nbytes, self.uuid = device, data, len(data), b""
        self.holders, self.unclosed, self.gone = {}, {}, Gone()
        device.open_count += 1

    def lane(self, nbytes: int) -> Lane:
        return LANE

    def __del__(self) -> None:
        self._device.open_count -= 1
        self.gone.tell()

    def _at(self, offset: int) -> int:
        return ctypes.addressof((ctypes.c_ubyte * self.nbytes).from_buffer(self._data)) + offset

    def to_host(self, offset: int, address: int, nbytes: int) -> None:
        if self._device.fails:
            raise Internal(self._device.fails)
        ctypes.memmove(address, self._at(offset), nbytes)

    def from_host(self, offset: int, address: int, nbytes: int) -> None:
        if self._device.fails:
            raise Internal(self._device.fails)
        ctypes.memmove(self._at(offset), address, nbytes)

    def from_device(self, offset: int, source: HostMemory, start: int, nbytes: int) -> None:
        ctypes.memmove(self._at(offset), source._at(start), nbytes)
