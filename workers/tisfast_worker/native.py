"""csrc/ through ctypes: rings, arenas and process facts, without anything compiled for this Python.

Short calls go through PyDLL, which keeps the GIL: releasing and taking it costs more than they do, and two threads
can then not interleave inside one.  Only tf_worker_wait and tf_reply_wait, which sleep, release it.
"""

import ctypes
import functools
import importlib
import mmap
import os
import struct

try:
    direct = importlib.import_module("tisfast_worker.csrc_calls")
except ModuleNotFoundError:  # compiled for the server's own Python only
    direct = None

TF_ABI_VERSION = 6
TF_EXEC, TF_ANSWER, TF_ERROR, TF_RELEASE, TF_CLOSED, TF_EXECUTED = 1, 2, 3, 4, 5, 6
TF_CALL, TF_CALL_CANCEL, TF_CALL_DONE, TF_RESCHEDULE = 7, 8, 9, 10
TF_FINAL, TF_RETAINED, TF_EARLY = 1, 2, 4
TF_NULL = 1
BLOCK_OFFSET_MASK = (1 << 40) - 1
BLOCK_MIN = 512
SLOT_BYTES = 64

# kind, flags, batch_left, meta_bytes, request, meta_offset, submit_ns, told, slot, claim
SUBMIT_SLOT = struct.Struct("<BBHIQQqIII")
COMPLETE_SLOT = struct.Struct("<BBHIQQqqqqII")  # ... WIRE.md and tf_ring.h: struct tf_complete_slot
REPLY_SLOT = struct.Struct("<BBHIQQQI")  # kind, flags, status, meta_bytes, call, meta_offset, answer, told
_CHANNEL_STOP = 68
_RINGS = {"submit": 128, "complete": 320, "give": 512, "reply": 704}  # offsets of struct tf_ring in struct tf_channel
_RING_SLOTS = 128  # offset of `slots` and `offset` in struct tf_ring

_u32, _u64, _i64, _int, _ptr = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int, ctypes.c_size_t
_double = ctypes.c_double
_SIGNATURES = {
    "tf_channel_check": (_int, [_ptr, _u64]),
    "tf_ring_reserve": (_ptr, [_ptr, _ptr, _u32]),
    "tf_ring_publish": (None, [_ptr, _u32]),
    "tf_ring_take": (None, [_ptr, _u32]),
    "tf_ring_pending": (_u64, [_ptr]),
    "tf_submit_begin": (_int, [_ptr, _u32]),
    "tf_worker_wake": (_int, [_ptr]),
    "tf_worker_nudge": (None, [_ptr]),
    "tf_bell_map": (_ptr, [_int]),
    "tf_bell_ring": (_int, [_ptr, _ptr, _int]),
    "tf_arena_new": (_ptr, [_u64, _u64]),
    "tf_arena_delete": (None, [_ptr]),
    "tf_arena_take": (_u64, [_ptr, _u64]),
    "tf_arena_give": (_int, [_ptr, _u64]),
    "tf_arena_trim": (_u64, [_ptr, _int]),
    "tf_cell_get": (_double, [_ptr]),
    "tf_cell_set": (None, [_ptr, _double]),
    "tf_cell_add": (None, [_ptr, _double]),
    "tf_arena_used_blocks": (_u64, [_ptr]),
    "tf_arena_used_bytes": (_u64, [_ptr]),
    "tf_output_take": (_u64, [_ptr, _u64]),
    "tf_output_collect": (_u64, [_ptr, _ptr]),
    "tf_reply_took": (_int, [_ptr, _u32]),
    "tf_window_map": (_ptr, [_int, _u64, _u64, _ptr]),
    "tf_window_unmap": (_int, [_ptr, _u64]),
    "tf_window_written": (_int, [_int, _ptr, _u64]),
    "tf_faults": (_u64, []),
    "tf_faults_counted": (_int, []),
    "tf_guard_add": (_int, [_ptr, _u64]),
    "tf_guard_arm": (_int, []),
    "tf_guard_lost": (_u32, [_int]),
    "tf_guard_remove": (None, [_int]),
    "tf_die_with_parent": (_int, [_int, _int]),
    "tf_ignore_signal": (_int, [_int]),
    "tf_pidfd_open": (_int, [_int]),
}


class NativeError(OSError):
    """A call of csrc failed, or a memory file is not what it should be."""


class Library:
    """libtisfast_shm.so: its functions as attributes, pointers as plain integers."""

    def __init__(self, path):
        """Load from `path`, the file beside the worker runtime."""
        if not os.path.exists(path):
            raise NativeError(f"{path} is missing: run `python setup.py build_ext --inplace`, or reinstall tisfast")
        self.path = path
        held = ctypes.PyDLL(path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(held, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        released = ctypes.CDLL(path)
        self.tf_worker_wait, self.tf_reply_wait = released.tf_worker_wait, released.tf_reply_wait
        for wait in (self.tf_worker_wait, self.tf_reply_wait):
            wait.restype, wait.argtypes = _i64, [_ptr, _i64, _i64]
        if direct is not None:
            vars(self).update({name: call for name, call in vars(direct).items() if name.startswith("tf_")})

    def die_with_parent(self, signal, parent):
        """Have the kernel send `signal` when `parent` ends.  Raises ProcessLookupError when it already has."""
        if self.tf_die_with_parent(signal, parent) < 0:
            raise ProcessLookupError(f"parent process {parent} has already ended")

    def ignore_signal(self, signal):
        """Ignore `signal` in this process, but not in those that it forks.  Raises NativeError."""
        error = self.tf_ignore_signal(signal)
        if error < 0:
            raise NativeError(-error, f"cannot ignore signal {signal}: {os.strerror(-error)}")

    def pidfd_open(self, pid):
        """A descriptor that becomes readable when `pid` ends.  Raises NativeError."""
        fd = self.tf_pidfd_open(pid)
        if fd < 0:
            raise NativeError(-fd, f"cannot open a pidfd of process {pid}: {os.strerror(-fd)}")
        return fd


class Fields:
    """The fields of a struct.Struct, wherever it lies in one memory.

    `read(at)` is a tuple of their values, `write(at, values)` gives them those of a tuple.  Both raise struct.error
    where they do not fit.
    """

    def __init__(self, memory, layout):
        """`memory`: an mmap."""
        self.read = functools.partial(layout.unpack_from, memory)
        self._write = functools.partial(layout.pack_into, memory)

    def write(self, at, values):
        """See above."""
        self._write(at, *values)


class RawMemory:
    """The bytes of an mmap, which is not closed as long as anybody uses this."""

    def __init__(self, memory):
        """Reads and writes `memory`."""
        self._memory = memory

    def read(self, at, nbytes):
        """A copy, cut where the memory ends."""
        return self._memory[at : at + nbytes]

    def write(self, at, raw):
        """Copy bytes there.  Raises IndexError where they do not fit."""
        self._memory[at : at + len(raw)] = raw

    def fields(self, layout):
        """The Fields of a struct.Struct of this memory."""
        return Fields(self._memory, layout)


def block_offset(block):
    """Where the block of a handle begins in its arena."""
    return (block & BLOCK_OFFSET_MASK) * BLOCK_MIN


if direct is not None:
    RawMemory, block_offset = direct.RawMemory, direct.block_offset


class Mapping:
    """One memory file mapped whole, for the life of the process: `base` its address, `memory` and `raw` its bytes."""

    def __init__(self, fd, what):
        """Map the file behind `fd`, which may be closed afterwards."""
        self.nbytes = os.fstat(fd).st_size
        if self.nbytes == 0:
            raise NativeError(f"the {what} is an empty file")
        self.memory = mmap.mmap(fd, self.nbytes)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.raw = RawMemory(self.memory)


class Channel(Mapping):
    """The four rings towards one server.  Raises NativeError when the layout is not that of tf_ring.h."""

    def __init__(self, library, fd):
        """Map and check."""
        super().__init__(fd, "channel")
        if library.tf_channel_check(self.base, self.nbytes) != 0:
            raise NativeError(f"the channel has another layout than this runtime's (ABI {TF_ABI_VERSION})")
        self._library = library
        self.submit, self.complete, self.give, self.reply = (self.base + at for at in _RINGS.values())
        self.submit_slots, self.complete_slots, self.give_slots, self.reply_slots = (
            self._slots(at) for at in _RINGS.values()
        )

    def _slots(self, ring):
        """(index mask, offset of slot 0) of the ring at this offset."""
        slots, offset = struct.unpack_from("<II", self.memory, ring + _RING_SLOTS)
        if slots == 0 or slots & (slots - 1) or offset + slots * SLOT_BYTES > self.nbytes:
            raise NativeError(f"a ring of {slots} slots at {offset} does not fit its channel")
        return slots - 1, offset

    def request_stop(self):
        """Have the loop end when submit is empty.  A 4-byte store is atomic; waking fences it."""
        struct.pack_into("<I", self.memory, _CHANNEL_STOP, 1)
        self._library.tf_worker_wake(self.base)

    def nudge(self):
        """Have the loop look around as soon as it is idle.  From any thread and finaliser."""
        self._library.tf_worker_nudge(self.base)

    @property
    def stopping(self):
        """Whether the loop shall end."""
        return struct.unpack_from("<I", self.memory, _CHANNEL_STOP)[0] != 0
