# Counters of one model version: additions on the hot path, read by /stats and /metrics.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint64_t

cdef struct Tally:
    uint64_t count
    uint64_t ns

cdef class Statistics:
    cdef Tally success, fail, queue, compute_input, compute_infer, compute_output
    cdef readonly uint64_t inference_count, execution_count
    cdef readonly uint64_t last_inference_ms   # since the epoch, row 11.02
    cdef readonly uint64_t pending             # queued, not executing (row 21.08)
    cdef readonly uint64_t rejected, canceled, backend_failed, other_failed  # row 21.05
    cdef readonly dict batch_stats             # batch size -> [count, input ns, infer ns, output ns]
