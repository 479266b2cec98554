# Memory that clients own and registered under a name: POSIX shared memory or device memory.  Layer 1 (native).
from libc.stdint cimport uint64_t
from tisfast.native.memory cimport MemoryFile

cdef class Region:
    """Part of a client's memory.  Closed when the last reference is gone: who uses it keeps it, whatever is
    unregistered meanwhile.  Offsets are from the region's start."""
    cdef readonly str name
    cdef readonly str key             # of the system family, as registered; "" for devices
    cdef readonly uint64_t offset     # of the region in the file
    cdef readonly uint64_t nbytes
    cdef readonly int device          # as registered; -1: system memory, a SystemRegion
    cdef readonly MemoryFile file     # what it is a part of: a ClientFile or a DeviceFile
    # Raises BadRequest with Triton's wording when [offset, offset + nbytes) is not within the region.  kind, name: of
    # the tensor, as in "input 'A'".
    cdef int check(self, uint64_t offset, uint64_t nbytes, str kind=*, str name=*) except -1
    # Copy out of and into the region; the bounds are checked against the memory's size as it is now.  Raises TisError.
    cdef int read(self, uint64_t offset, void *to, uint64_t nbytes) except -1
    cdef int write(self, uint64_t offset, const void *data, uint64_t nbytes) except -1
    # Copy [start, start + nbytes) of a guarded file into the region, as `write` does.
    cdef int write_from(self, uint64_t offset, MemoryFile file, uint64_t start, uint64_t nbytes) except -1
    cdef int _copy(self, uint64_t offset, void *host, uint64_t nbytes, bint out) except -1

cdef class ClientFile(MemoryFile):
    """The part of a client's file that a region is."""
    cdef str name, key                # of the region, for errors
    cdef bint owns                    # fd
    cdef uint64_t slack               # mapped in front of `base`: mappings begin with a page
    # Raises BadRequest when the file does not reach to `end` any more.
    cdef int check_size(self, uint64_t end) except -1
    cdef int copy(self, uint64_t offset, void *host, uint64_t nbytes, bint out) except -1

cdef class DeviceFile(MemoryFile):
    """Device memory that a client has exported."""
    cdef readonly object memory       # cuda_faces.DeviceMemory
    cdef readonly bytes handle        # its cudaIpcMemHandle_t, by which a worker opens it
    cdef readonly str region          # the client's region that it is; "" for memory that the server lends

cdef class SystemRegion(Region):
    pass

cdef class DeviceRegion(Region):
    pass

cdef class Regions:
    """All registered regions by name: one name space for both families."""
    cdef dict by_name
    cdef public uint64_t copied_at_once  # bytes that one request may have copied where it is read
    # Raises NotFound.
    cdef Region find(self, str name)
