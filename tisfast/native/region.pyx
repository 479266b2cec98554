"""Regions: memory that clients own, and that is therefore never trusted to be there.  Layer 1 (native).

A client may truncate its file at any moment.  So every use looks at the file's size (0.4 us), and copies under a guard
that turns a page that vanished meanwhile into an error of this one request (csrc/tf_guard.h).

GIL: held up to LOOP_COPY_BYTES_MAX; longer copies are made by threads, beside which the loop goes on.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t
from posix.unistd cimport close
from tisfast.native.memory cimport Block, MemoryFile

import os

from tisfast import tuning
from tisfast.errors import BadRequest, Internal, NotFound
from tisfast.limits import DEVICE_MAX

cdef extern from "tf_shm.h":
    int64_t tf_shm_size(int fd) noexcept

cdef extern from "tf_guard.h":
    int tf_guard_install() noexcept
    int tf_guard_copy(void *to, const void *data, size_t n) noexcept nogil

cdef extern from "<sys/mman.h>":
    enum: PROT_READ, PROT_WRITE, MAP_SHARED
    void *MAP_FAILED
    void *mmap(void *at, size_t n, int protection, int flags, int fd, int64_t offset) noexcept
    int munmap(void *at, size_t n) noexcept

cdef uint64_t PAGE_BYTES = os.sysconf("SC_PAGESIZE")
cdef int GPU_OF_NONE = DEVICE_MAX + 1  # no instance is on it
cdef uint64_t LOOP_COPY_BYTES_MAX = tuning.LOOP_COPY_BYTES_MAX


# What byte_size may be, of so many bytes.
cdef str allowed(uint64_t nbytes, str where=""):
    return f", byte_size may be 1 to {nbytes}" if nbytes else f", and there are none {where}" if where else ""


cdef class Region:
    """See region.pxd.  Cython has no abstract methods: subclasses override all that raise here."""

    cdef int check(self, uint64_t offset, uint64_t nbytes, str kind=None, str name=None) except -1:
        if offset < self.nbytes and nbytes <= self.nbytes - offset:
            return 0
        whose = "" if name is None else f"{kind} '{name}'"
        of = f"{whose}: " if whose else ""
        if offset >= self.nbytes:
            raise BadRequest(
                f"Invalid offset for shared memory region: '{self.name}' ({of}offset {offset}, the region has "
                f"{self.nbytes} bytes)")
        if nbytes > UINT64_MAX - offset:
            raise BadRequest(
                f"Integer overflow detected: byte_size ({nbytes}) + offset ({offset}) exceeds maximum value "
                f"({UINT64_MAX}) for region '{self.name}'{f' ({whose})' if whose else ''}")
        raise BadRequest(
            f"Invalid offset + byte size for shared memory region: '{self.name}' ({of}offset {offset} + byte_size "
            f"{nbytes}, the region has {self.nbytes} bytes)")

    cdef int read(self, uint64_t offset, void *to, uint64_t nbytes) except -1:
        self.check(offset, nbytes)
        return self._copy(offset, to, nbytes, True)

    cdef int write(self, uint64_t offset, const void *data, uint64_t nbytes) except -1:
        self.check(offset, nbytes)
        return self._copy(offset, <void *>data, nbytes, False)

    # Neither the driver nor a guarded copy may meet a page of the other that has gone: what crosses over goes by way of
    # memory of ours.
    cdef int write_from(self, uint64_t offset, MemoryFile file, uint64_t start, uint64_t nbytes) except -1:
        self.check(offset, nbytes)
        if self.device < 0 and file.device < 0:
            (<ClientFile>file).check_size(start + nbytes)
            return self._copy(offset, file.at(start), nbytes, False)  # `write` catches what goes away on either side
        if self.device >= 0 and file is self.file and start == offset:
            return 0  # the worker has written it
        if self.device >= 0 and file.device >= 0:
            (<DeviceFile>self.file).memory.from_device(offset, (<DeviceFile>file).memory, start, nbytes)
            return 0
        crossing = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>nbytes)
        file.copy_out(start, PyBytes_AS_STRING(crossing), nbytes)
        return self._copy(offset, PyBytes_AS_STRING(crossing), nbytes, False)

    cdef int _copy(self, uint64_t offset, void *host, uint64_t nbytes, bint out) except -1:
        raise NotImplementedError(f"{type(self).__name__}._copy")

    def fetch(self, uint64_t offset, uint64_t nbytes) -> bytes:
        """A copy of its bytes, for tests and tools.  Raises TisError."""
        self.check(offset, nbytes)
        found = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>nbytes)
        self.read(offset, PyBytes_AS_STRING(found), nbytes)
        return found

    def copy_to(self, uint64_t offset, Block block, uint64_t at, uint64_t nbytes) -> None:
        """Copy bytes of it to [at, at + nbytes) of a block.  Raises TisError."""
        if at > block.nbytes or nbytes > block.nbytes - at:
            raise Internal(f"{nbytes} bytes at {at} lie outside a block of {block.nbytes} bytes")
        self.read(offset, block.data + at, nbytes)

    def store(self, uint64_t offset, bytes data) -> None:
        """Write bytes, for tests and tools.  Raises TisError."""
        self.write(offset, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef class ClientFile(MemoryFile):
    """[offset, offset + nbytes) of the file behind `fd`, which belongs to this object from here on, also when this
    raises.  Raises BadRequest when the file is not that long or cannot be mapped."""

    def __cinit__(self, str name, str key, int fd, uint64_t offset, uint64_t nbytes):
        cdef uint64_t slack = offset % PAGE_BYTES
        cdef int64_t size = tf_shm_size(fd)
        cdef void *base
        self.name = name
        self.key = key
        self.fd = fd
        self.owns = True
        self.begin = offset
        self.nbytes = nbytes
        self.guarded = True
        if size < 0 or nbytes == 0 or offset > <uint64_t>size or nbytes > <uint64_t>size - offset:
            raise BadRequest(
                f"failed to register shared memory region '{name}': invalid args (offset {offset} + "
                f"byte_size {nbytes}; the file of key '{key}' has {size} bytes"
                f"{allowed(size - <int64_t>offset if size > 0 and offset < <uint64_t>size else 0, 'behind the offset')})")
        err = tf_guard_install()
        base = mmap(NULL, nbytes + slack, PROT_READ | PROT_WRITE, MAP_SHARED, fd, <int64_t>(offset - slack))
        if base == MAP_FAILED or err:
            raise BadRequest(
                f"failed to register shared memory region '{name}': unable to process address space: "
                f"{os.strerror(-err if err else errno)}")
        self.slack = slack
        self.base = <unsigned char *>base + slack

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base - self.slack, self.nbytes + self.slack)
        if self.owns:
            close(self.fd)

    cdef int check_size(self, uint64_t end) except -1:
        cdef int64_t size = tf_shm_size(self.fd)
        if size >= 0 and <uint64_t>size >= end:
            return 0
        raise BadRequest(
            f"Invalid offset + byte size for shared memory region: '{self.name}' (the file of key '{self.key}' has "
            f"shrunk to {size} bytes, {end} are needed)")

    cdef int copy_out(self, uint64_t offset, void *to, uint64_t nbytes) except -1:
        return self.copy(offset, to, nbytes, True)

    cdef int copy(self, uint64_t offset, void *host, uint64_t nbytes, bint out) except -1:
        cdef unsigned char *at = self.at(offset)
        cdef int failed
        self.check_size(offset + nbytes)
        if nbytes <= LOOP_COPY_BYTES_MAX:
            failed = tf_guard_copy(host if out else at, at if out else host, nbytes)
        else:
            with nogil:  # a long copy, by a thread beside the loop
                failed = tf_guard_copy(host if out else at, at if out else host, nbytes)
        if not failed:
            return 0
        raise Internal(
            f"shared memory region '{self.name}' could not be {'read' if out else 'written'}: its memory went away "
            f"during the copy of {nbytes} bytes (the file of key '{self.key}' was truncated, or its file system is full)")


cdef class SystemRegion(Region):
    """A region of POSIX shared memory; arguments as of ClientFile, whose errors it raises."""

    def __cinit__(self, str name, str key, int fd, uint64_t offset, uint64_t nbytes):
        self.name = name
        self.key = key
        self.offset = offset
        self.nbytes = nbytes
        self.device = -1
        self.file = ClientFile(name, key, fd, offset, nbytes)

    cdef int _copy(self, uint64_t offset, void *host, uint64_t nbytes, bint out) except -1:
        return (<ClientFile>self.file).copy(self.offset + offset, host, nbytes, out)


cdef class DeviceFile(MemoryFile):
    """See region.pxd."""

    def __cinit__(self, memory, int device, bytes handle, str region=""):
        self.fd = -1
        self.region = region
        self.device = device
        self.nbytes = memory.nbytes
        self.guarded = True
        self.memory = memory
        self.handle = handle

    cdef int copy_out(self, uint64_t offset, void *to, uint64_t nbytes) except -1:
        self.memory.to_host(offset, <size_t>to, nbytes)
        return 0

    def lane(self, uint64_t nbytes):
        """The thread for copies of so many bytes."""
        return self.memory.lane(nbytes)

    @property
    def is_lent(self) -> bool:
        """Whether it is memory of this process, which others have open."""
        return self.memory.is_lent

    def stay_away(self) -> None:
        """No worker is to be told of it any more: who needs it gets copies."""
        self.device = GPU_OF_NONE

    def copy_to(self, uint64_t offset, Block block, uint64_t nbytes) -> None:
        """Copy bytes of it to the start of a block.  In the thread of `lane`.  Raises TisError."""
        if not self.holds(offset, nbytes) or nbytes > block.nbytes:
            raise Internal(f"{nbytes} bytes at {offset} lie outside of {self.nbytes} bytes of GPU memory, or of the block")
        self.copy_out(offset, block.data, nbytes)


cdef class DeviceRegion(Region):
    """The first `nbytes` of device memory; handle: its cudaIpcMemHandle_t.  Raises BadRequest when it is not that large.

    device: the GPU as clients count; gpu: as models' instances do, None: the same.
    """

    def __cinit__(self, str name, memory, int device, bytes handle, uint64_t nbytes, gpu=None):
        self.name = name
        self.key = ""
        self.device = device
        self.nbytes = nbytes
        self.file = DeviceFile(memory, device if gpu is None else gpu, handle, name)
        if nbytes == 0 or nbytes > memory.nbytes:
            raise BadRequest(
                f"failed to register shared memory region '{name}': invalid args (byte_size {nbytes}; the "
                f"memory behind the handle has {memory.nbytes} bytes{allowed(memory.nbytes)})")

    cdef int _copy(self, uint64_t offset, void *host, uint64_t nbytes, bint out) except -1:
        if out:
            return self.file.copy_out(offset, host, nbytes)
        (<DeviceFile>self.file).memory.from_host(offset, <size_t>host, nbytes)
        return 0


cdef class Regions:
    """See region.pxd."""

    def __cinit__(self):
        self.by_name = {}
        self.copied_at_once = UINT64_MAX

    cdef Region find(self, str name):
        region = self.by_name.get(name)
        if region is None:
            raise NotFound(f"Unable to find shared memory region: '{name}'")
        return <Region>region

    def add(self, Region region) -> None:
        """Register; the name must be free (the caller has looked)."""
        self.by_name[region.name] = region

    def lookup(self, str name) -> Region:
        """The region of that name.  Raises NotFound."""
        return self.find(name)

    def get(self, str name):
        """The region of that name, or None."""
        return self.by_name.get(name)

    def remove(self, str name) -> None:
        """Forget it; it lives on while a request uses it."""
        del self.by_name[name]

    def take(self, bint devices) -> dict:
        """Forget all of one family: what they were, by name."""
        cdef Region region
        cdef dict taken = {name: region for name, region in self.by_name.items() if (region.device >= 0) == devices}
        if len(taken) == len(self.by_name):
            self.by_name = {}
        else:
            self.by_name = {name: region for name, region in self.by_name.items() if name not in taken}
        return taken

    def all(self) -> list:
        """Every region, by name."""
        return [self.by_name[name] for name in sorted(self.by_name)]

    def __len__(self):
        return len(self.by_name)
