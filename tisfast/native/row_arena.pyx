"""Blocks of equal size side by side: what a batch is made of is then one array with a constant step.  Layer 1 (native).

For models that take a whole batch as one array (`execute_batch`).  Rows are taken lowest first: clients that are answered
together ask again together, and find the rows that were just given back, in order.  What finds no row lies elsewhere, as
in any arena; nothing depends on it but the worker's need to copy.
"""

from libc.stdint cimport uint64_t
from tisfast.native.memory cimport Arena, Block

from tisfast import limits

cdef extern from "tf_arena.h":
    """
    #define TF_LOWEST_BIT(word) __builtin_ctzll(word)
    """
    struct tf_arena:
        pass
    enum: TF_BLOCK_MIN
    uint64_t tf_arena_take(tf_arena *a, uint64_t nbytes)
    int tf_arena_give(tf_arena *a, uint64_t block)
    uint64_t tf_block_offset(uint64_t block)
    uint64_t tf_arena_used_bytes(const tf_arena *a)
    uint64_t tf_arena_used_blocks(const tf_arena *a)
    int TF_LOWEST_BIT(uint64_t word) noexcept

cdef int ROWS_MAX = limits.BATCH_ROWS_MAX
cdef int RUNS_MAX = limits.BATCH_RUNS_MAX
cdef uint64_t RUN_BYTES_MAX = limits.BATCH_RUN_BYTES_MAX
cdef int GENERATION_SHIFT = 40  # a handle of the allocator has a generation, never 0, above; a row's has 0


cdef class RowRun:
    """See row_arena.pxd."""


cdef class RowArena(Arena):
    """See row_arena.pxd; arguments as of Arena."""

    def __cinit__(self, str label, uint64_t cap_bytes, uint64_t use_bytes_max=0):
        self.runs = []

    cdef Block take(self, uint64_t nbytes):
        cdef uint64_t stride = (nbytes + TF_BLOCK_MIN - 1) // TF_BLOCK_MIN * TF_BLOCK_MIN
        cdef RowRun run = self._run(stride) if self.rows and nbytes else None
        cdef int word = 0, row
        if run is None:
            return Arena.take(self, nbytes)
        while run.free[word] == 0:
            word += 1
        row = 64 * word + TF_LOWEST_BIT(run.free[word])
        run.free[word] &= run.free[word] - 1
        run.taken += 1
        return self.lease((run.first + row * stride) // TF_BLOCK_MIN, nbytes)

    cdef void give(self, uint64_t handle) noexcept:
        cdef uint64_t offset = handle * TF_BLOCK_MIN
        cdef RowRun run
        cdef uint64_t row
        if handle >> GENERATION_SHIFT:
            Arena.give(self, handle)
            return
        for run in self.runs:
            row = (offset - run.first) // run.stride
            if run.first <= offset and row < <uint64_t>run.count:
                run.free[row // 64] |= <uint64_t>1 << row % 64
                run.taken -= 1
                return
        self.stale += 1

    cdef RowRun _run(self, uint64_t stride):
        """A run of this step with a free row, or None."""
        cdef RowRun run
        for run in self.runs:
            if run.stride == stride and run.taken < run.count:
                return run
        return self._new_run(stride)

    cdef RowRun _new_run(self, uint64_t stride):
        cdef RowRun run
        cdef int count = <int>min(<uint64_t>min(self.rows, ROWS_MAX), RUN_BYTES_MAX // stride)
        cdef int i
        if len(self.runs) >= RUNS_MAX:
            self._drop_empty()
        # Half of the arena stays for what is of no such size.
        if count < 2 or len(self.runs) >= RUNS_MAX or tf_arena_used_bytes(self.blocks) + count * stride > self.use_bytes_max // 2:
            return None
        run = RowRun.__new__(RowRun)
        run.handle = tf_arena_take(self.blocks, count * stride)
        if run.handle == 0:
            return None
        run.first, run.stride, run.count = tf_block_offset(run.handle), stride, count
        for i in range(count):
            run.free[i // 64] |= <uint64_t>1 << i % 64
        self.runs.append(run)
        return run

    cdef int _drop_empty(self) except -1:
        cdef RowRun run
        for run in self.runs:
            if run.taken == 0:
                tf_arena_give(self.blocks, run.handle)
        self.runs = [run for run in self.runs if (<RowRun>run).taken]
        return 0

    def trim(self) -> int:
        """Arena.trim, after runs without a taken row are given back."""
        self._drop_empty()
        return Arena.trim(self)

    def trim_top(self, uint64_t most) -> int:
        """As Arena's, likewise."""
        self._drop_empty()
        return Arena.trim_top(self, most)

    @property
    def used_blocks(self) -> int:
        """Blocks that are out, each row that is taken as one: a replaced model waits for these, not for empty runs."""
        cdef RowRun run
        cdef uint64_t used = tf_arena_used_blocks(self.blocks) if self.blocks != NULL else 0
        for run in self.runs:
            used += run.taken - 1
        return used

    @property
    def run_rows(self) -> list:
        """(taken rows, rows) of each run, for tests."""
        return [((<RowRun>run).taken, (<RowRun>run).count) for run in self.runs]
