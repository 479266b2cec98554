"""The worker's end of a channel, by the library that workers load."""

from __future__ import annotations

import ctypes
import mmap
import struct
from pathlib import Path

from tisfast.native.channel import Bell, Channel

LIBRARY = Path(__file__).resolve().parents[2] / "workers" / "libtisfast_shm.so"
# Offsets of the rings in struct tf_channel, and of its words.
SUBMIT, COMPLETE, GIVE, REPLY = 128, 320, 512, 704
ASLEEP, STOP, NUDGE = 64, 68, 76
SLOT_BYTES = 64
SUBMIT_FIELDS = (
    "kind", "flags", "batch_left", "meta_bytes", "request", "meta_offset", "submit_ns", "told", "slot", "claim",
)  # fmt: skip
ANSWER_FIELDS = (
    "kind", "flags", "status", "meta_bytes", "request", "block", "taken_ns", "infer_start_ns", "infer_end_ns",
    "done_ns", "batch",
)  # fmt: skip
REPLY_FIELDS = ("kind", "flags", "status", "meta_bytes", "call", "meta_offset", "answer", "told")


def library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(LIBRARY))
    address, count = ctypes.c_size_t, ctypes.c_uint32
    for name in ("tf_ring_reserve", "tf_ring_peek"):
        function = getattr(lib, name)
        function.restype, function.argtypes = address, [address, address, count]
    for name in ("tf_ring_publish", "tf_ring_take", "tf_submit_begin", "tf_reply_took"):
        getattr(lib, name).argtypes = [address, count]
    for name in ("tf_worker_wait", "tf_reply_wait"):
        function = getattr(lib, name)
        function.restype, function.argtypes = ctypes.c_int64, [address, ctypes.c_int64, ctypes.c_int64]
    lib.tf_bell_map.restype, lib.tf_bell_map.argtypes = address, [ctypes.c_int]
    lib.tf_bell_ring.argtypes = [address, address, ctypes.c_int]
    lib.tf_channel_check.argtypes = [address, ctypes.c_uint64]
    return lib


class WorkerSide:
    """Takes requests, answers them, and takes back blocks, as a worker does."""

    def __init__(self, channel: Channel) -> None:
        self.lib = library()
        self.memory = mmap.mmap(channel.fd, channel.nbytes)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.nbytes = channel.nbytes

    def peek(self, ring: int, ahead: int = 0) -> bytes | None:
        slot = self.lib.tf_ring_peek(self.base, self.base + ring, ahead)
        return ctypes.string_at(slot, SLOT_BYTES) if slot else None

    def take(self, ring: int) -> bytes | None:
        found = self.peek(ring)
        if found is not None:
            self.lib.tf_ring_take(self.base + ring, 1)
        return found

    def begin(self, count: int) -> bool:
        return bool(self.lib.tf_submit_begin(self.base, count))

    def complete(self, **fields: int) -> bool:
        """One answer; False: the ring is full."""
        slot = self.lib.tf_ring_reserve(self.base, self.base + COMPLETE, 0)
        if not slot:
            return False
        values = [fields.get(name, 0) for name in ANSWER_FIELDS]
        struct.pack_into("<BBHIQQqqqqI", self.memory, slot - self.base, *values)
        self.lib.tf_ring_publish(self.base + COMPLETE, 1)
        return True

    def word(self, offset: int) -> int:
        return struct.unpack_from("<I", self.memory, offset)[0]

    def set_word(self, offset: int, value: int) -> None:
        struct.pack_into("<I", self.memory, offset, value)

    def set_head(self, ring: int, value: int) -> None:
        """What the consumer says that it has taken."""
        struct.pack_into("<Q", self.memory, ring + 64, value)

    def set_tail(self, ring: int, value: int) -> None:
        """What the producer says that it has written."""
        struct.pack_into("<Q", self.memory, ring, value)

    def ring_bell(self, bell: Bell) -> int:
        page = self.lib.tf_bell_map(bell.fd)
        assert page
        return int(self.lib.tf_bell_ring(self.base, page, bell.eventfd))


def submitted(slot: bytes) -> dict[str, int]:
    """The fields of a submit slot."""
    return dict(zip(SUBMIT_FIELDS, struct.unpack_from("<BBHIQQqIII", slot), strict=True))


def replied(slot: bytes) -> dict[str, int]:
    """The fields of a reply slot."""
    return dict(zip(REPLY_FIELDS, struct.unpack_from("<BBHIQQQI", slot), strict=True))
