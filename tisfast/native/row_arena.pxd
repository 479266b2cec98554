# An arena whose blocks of equal size lie side by side.  Layer 1 (native).
from libc.stdint cimport uint64_t
from tisfast.native.memory cimport Arena, Block

cdef class RowRun:
    """Neighbouring rows of one size in one block of the arena."""
    cdef uint64_t handle             # of the block
    cdef uint64_t first, stride      # offset of row 0 in the arena, and of each row from the one before
    cdef int count, taken
    cdef uint64_t free[4]            # bit i of the words: row i is free

cdef class RowArena(Arena):
    """While `rows` is set, blocks of one size are rows of a run, the lowest free one first."""
    cdef public int rows             # of a run, 0: blocks lie where there is room
    cdef list runs
    cdef RowRun _run(self, uint64_t stride)
    cdef RowRun _new_run(self, uint64_t stride)
    cdef int _drop_empty(self) except -1
