# Rings to one worker, and the bell that wakes the event loop.  Layer 1 (native).
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "tf_ring.h" nogil:
    enum: TF_EXEC, TF_ANSWER, TF_ERROR, TF_RELEASE, TF_CLOSED, TF_EXECUTED
    enum: TF_CALL, TF_CALL_CANCEL, TF_CALL_DONE, TF_RESCHEDULE
    enum: TF_FINAL, TF_RETAINED, TF_EARLY
    enum: TF_NULL
    enum: TF_SUBMIT_SLOTS
    enum: TF_VAIN_SPINS_MAX
    struct tf_submit_slot:
        uint8_t kind, flags
        uint16_t batch_left
        uint32_t meta_bytes
        uint64_t request, meta_offset
        int64_t submit_ns
        uint32_t told, slot
    struct tf_complete_slot:
        uint8_t kind, flags
        uint16_t status
        uint32_t meta_bytes
        uint64_t request, block
        int64_t taken_ns, infer_start_ns, infer_end_ns, done_ns
        uint32_t batch
    struct tf_give_slot:
        uint64_t block
    struct tf_reply_slot:
        uint8_t kind, flags
        uint16_t status
        uint32_t meta_bytes
        uint64_t call, meta_offset, answer
        uint32_t told, zero
        uint8_t reserved[24]
    struct tf_channel:
        pass
    struct tf_bell:
        pass

cdef class Bell:
    """One page and one eventfd for the whole server; every worker reads the page and rings the eventfd."""
    cdef readonly int fd                      # read-only
    cdef readonly int eventfd
    cdef tf_bell *page
    cdef void announce_sleep(self) noexcept   # then look at the rings once more
    cdef void awake(self) noexcept
    cdef bint clear(self) noexcept            # read the eventfd; True when it had been rung

cdef class Cells:
    """The numbers of all custom metrics, in one file that every worker maps and changes (csrc/tf_cell.h)."""
    cdef readonly int fd
    cdef double *numbers
    cdef double *_cell(self, uint32_t index) except NULL

cdef class Channel:
    """The server's end of one worker's three rings.  Event-loop thread only."""
    cdef readonly int fd
    cdef readonly uint64_t nbytes
    cdef tf_channel *c
    cdef uint64_t written                     # submit slots ever written: the next request's ticket
    cdef uint32_t unpublished
    cdef uint32_t told                        # messages sent on the share socket, for the slots to come
    # Write one slot; returns its ticket, or -1 when the ring is full.  sequence_slot, flags: of sequences, else 0.
    cdef int64_t submit(
        self, uint64_t meta_offset, uint32_t meta_bytes, uint16_t batch_left, int64_t now, uint32_t sequence_slot,
        uint8_t flags) noexcept
    cdef void publish(self) noexcept          # all written slots, and wake the worker if it sleeps
    cdef bint next_answer(self, tf_complete_slot *out) noexcept
    cdef uint64_t taken(self) noexcept        # tickets below this were taken by the worker
    cdef bint recall(self, uint64_t last) noexcept  # the batch that ends with this ticket; False: the worker has begun it
    cdef void give(self, uint64_t block) noexcept
    cdef uint32_t room(self) noexcept         # free submit slots
    # One answer to a call of the worker's; `told` is set here.  False: the ring is full, and the worker rings the bell when
    # it has taken some.
    cdef bint reply(self, tf_reply_slot *answer) noexcept
    cdef void nudge(self) noexcept            # an idle worker looks at its share socket
