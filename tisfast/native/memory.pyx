"""Arenas and blocks: csrc's allocator as Python objects with an owner.  Layer 1 (native).

GIL: held throughout; every call is a few loads and stores, or happens once per arena.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.signal cimport SIGKILL
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from posix.unistd cimport close

import errno
import os
import resource

from tisfast import limits
from tisfast.errors import Internal, Unavailable

cdef double PROMISE_NS_MAX = limits.PROMISE_SECONDS_MAX * 1e9
cdef int GIVE_WAY_MAX = limits.GIVE_WAY_MAX

cdef extern from "tf_shm.h":
    int tf_shm_create(const char *label, uint64_t nbytes)
    void *tf_shm_map(int fd, uint64_t nbytes, int *err)
    int tf_shm_unmap(void *base, uint64_t nbytes)
    int tf_shm_discard(int fd, uint64_t offset, uint64_t nbytes)
    int64_t tf_now_ns() noexcept
    int tf_die_with_parent(int sig, int parent_pid) noexcept

cdef extern from "tf_arena.h":
    tf_arena *tf_arena_new(uint64_t cap_bytes, uint64_t use_bytes_max)
    void tf_arena_delete(tf_arena *a)
    uint64_t tf_arena_take(tf_arena *a, uint64_t nbytes)
    int tf_arena_give(tf_arena *a, uint64_t block)
    uint64_t tf_block_offset(uint64_t block)
    uint64_t tf_arena_cost_bytes(uint64_t nbytes)
    uint64_t tf_arena_used_bytes(const tf_arena *a)
    uint64_t tf_arena_used_blocks(const tf_arena *a)
    uint64_t tf_arena_trim(tf_arena *a, int fd)
    uint64_t tf_arena_trim_top(tf_arena *a, int fd, uint64_t most)


cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    #define give_heap_back() malloc_trim(0)
    #else
    #define give_heap_back() 0  /* musl does so by itself */
    #endif
    """
    int give_heap_back() nogil


def trim_heap() -> None:
    """Give free pages of the C heap back to the system, which glibc keeps between blocks that live: some ms."""
    with nogil:  # walks through the whole heap
        give_heap_back()


def now_ns() -> int:
    """CLOCK_MONOTONIC in ns, the clock of rings and statistics."""
    return tf_now_ns()


def die_with_parent(int parent_pid) -> None:
    """From now on this process is killed when the thread that started it ends.  Raises ProcessLookupError when it has."""
    cdef int err = tf_die_with_parent(SIGKILL, parent_pid)
    if err:
        raise OSError(-err, os.strerror(-err))


cdef str limit_of_space(int error):
    """What to do about a mapping that failed for want of address space; "" where it failed for something else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if error != errno.ENOMEM or soft == resource.RLIM_INFINITY:
        return ""
    return (
        f"; this process may have {soft} bytes of address space (ulimit -v), and arenas reserve much more than they use: "
        "lift that limit and bound the memory itself, by a cgroup or a container"
    )


cdef class MemoryFile:
    """See memory.pxd."""

    def __cinit__(self):
        self.device = -1

    cdef int copy_out(self, uint64_t offset, void *to, uint64_t nbytes) except -1:
        memcpy(to, self.at(offset), nbytes)
        return 0


cdef class Arena(MemoryFile):
    """One memory file.

    label: shown in /proc/PID/maps; cap_bytes: address space; use_bytes_max: most bytes given out at one time, 0 for an
    arena whose blocks a worker hands out; fd: of the file where another process made it, ours from here on.  Raises
    Internal when the kernel refuses.
    """

    def __cinit__(self, str label, uint64_t cap_bytes, uint64_t use_bytes_max=0, int fd=-1):
        cdef int err = 0
        self.fd = tf_shm_create(label.encode()[:200], cap_bytes) if fd < 0 else fd
        if self.fd < 0:
            err, self.fd = self.fd, -1
            raise Internal(f"cannot create memory file {label!r} of {cap_bytes} bytes: {os.strerror(-err)}")
        self.base = <unsigned char *>tf_shm_map(self.fd, cap_bytes, &err)
        if self.base == NULL:
            raise Internal(f"cannot map memory file {label!r} of {cap_bytes} bytes: {os.strerror(-err)}{limit_of_space(-err)}")
        self.nbytes = cap_bytes
        self.label = label
        self.use_bytes_max = use_bytes_max
        if use_bytes_max:
            self.blocks = tf_arena_new(cap_bytes, use_bytes_max)
            if self.blocks == NULL:
                raise Internal(f"no memory for the block table of {label!r} ({cap_bytes} bytes)")

    def __dealloc__(self):
        if self.shown:  # a worker that sleeps has it mapped still: that is to cost no memory
            tf_shm_discard(self.fd, 0, self.nbytes)
        if self.base != NULL:
            tf_shm_unmap(self.base, self.nbytes)
        if self.fd >= 0:
            close(self.fd)
        tf_arena_delete(self.blocks)

    cdef Block take(self, uint64_t nbytes):
        cdef uint64_t handle = tf_arena_take(self.blocks, nbytes)
        cdef int gone = 0
        while handle == 0 and gone < GIVE_WAY_MAX and self._make_room(nbytes):
            gone += 1
            handle = tf_arena_take(self.blocks, nbytes)
        if handle == 0:
            raise Unavailable(
                f"no room for {nbytes} bytes in {self.label}: {tf_arena_used_bytes(self.blocks)} of "
                f"{self.use_bytes_max} bytes are in use; retry when other requests have been answered"
            )
        return self.lease(handle, nbytes)

    cdef bint _make_room(self, uint64_t nbytes) except -1:
        """Whether a body gave way, the slowest one; none does where all that are slow could not make room enough."""
        cdef Promise each, slowest = None
        cdef double expected, longest = PROMISE_NS_MAX
        cdef int64_t now = tf_now_ns()
        cdef uint64_t used = tf_arena_used_bytes(self.blocks), slow = 0
        if not self.promises:
            return False
        for each in self.promises:
            expected = <double>(now - each.began_ns) * <double>each.nbytes / <double>max(each.come, <uint64_t>1)
            if expected > PROMISE_NS_MAX:
                slow += tf_arena_cost_bytes(each.nbytes)
            if expected > longest:
                slowest, longest = each, expected
        if slowest is None or used + tf_arena_cost_bytes(nbytes) > self.use_bytes_max + slow:
            return False
        owner = slowest.owner
        slowest.withdraw()
        owner.give_way()
        return True

    cdef Block lease(self, uint64_t handle, uint64_t nbytes):
        cdef Block block = Block.__new__(Block)
        block.arena = self
        block.handle = handle
        block.offset = tf_block_offset(handle)
        block.data = self.base + block.offset
        block.nbytes = nbytes
        return block

    cdef void give(self, uint64_t handle) noexcept:
        if tf_arena_give(self.blocks, handle) < 0:
            self.stale += 1

    def take_block(self, uint64_t nbytes) -> Block:
        """A block of at least nbytes.  Raises Unavailable when the arena is full."""
        return self.take(nbytes)

    cdef uint64_t cost(self, uint64_t nbytes) noexcept:
        return tf_arena_cost_bytes(nbytes)

    def trim(self) -> int:
        """Give free pages back to the system; returns bytes.  Call when idle."""
        return tf_arena_trim(self.blocks, self.fd) if self.blocks != NULL else 0

    def trim_top(self, uint64_t most) -> int:
        """Trim at most so many bytes, the last ones first; 0: the rest needs a whole trim."""
        return tf_arena_trim_top(self.blocks, self.fd, most) if self.blocks != NULL else 0

    @property
    def used_bytes(self) -> int:
        """Bytes in blocks that are out."""
        return tf_arena_used_bytes(self.blocks) if self.blocks != NULL else 0

    @property
    def used_blocks(self) -> int:
        """Blocks that are out."""
        return tf_arena_used_blocks(self.blocks) if self.blocks != NULL else 0

    @property
    def resident_bytes(self) -> int:
        """Memory that the file takes now, by the kernel's count."""
        return os.fstat(self.fd).st_blocks * 512


@cython.freelist(256)
@cython.no_gc_clear  # in a cycle of garbage, too, it must still know its arena when it goes
cdef class Block:
    """A lease on one block; the buffer protocol gives its bytes, writable."""

    def __dealloc__(self):
        if self.arena is not None:
            self.arena.give(self.handle)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, <Py_ssize_t>self.nbytes, 0, flags)

    def __len__(self):
        return self.nbytes


@cython.freelist(64)
cdef class Promise:
    """See memory.pxd."""

    cdef int withdraw(self) except -1:
        if self.owner is not None:
            self.owner = None
            self.arena.promises.discard(self)
        return 0


cdef Promise promise(Arena arena, object owner, uint64_t nbytes, uint64_t come):
    cdef Promise made = Promise.__new__(Promise)
    made.arena, made.owner, made.nbytes, made.come = arena, owner, nbytes, come
    made.began_ns = tf_now_ns()
    if arena.promises is None:
        arena.promises = set()
    arena.promises.add(made)
    return made


@cython.freelist(64)
cdef class BufferView:
    """A buffer over part of what `owner` keeps alive."""

    cdef int aim(self, object owner, unsigned char *data, Py_ssize_t nbytes, bint writable) except -1:
        if self.exports:
            raise BufferError(f"view is exported {self.exports} times and cannot be aimed again")
        self.owner = owner
        self.data = data
        self.nbytes = nbytes
        self.writable = writable
        return 0

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.nbytes, not self.writable, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.exports -= 1

    def __len__(self):
        return self.nbytes
