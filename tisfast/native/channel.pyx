"""The rings of csrc/tf_ring.h as seen from the server's event loop.  Layer 1 (native).

GIL: held throughout; the longest call is one futex or eventfd system call, made only when the other side sleeps.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from posix.unistd cimport close

import os

from tisfast.errors import Internal

cdef extern from "tf_shm.h":
    int tf_shm_create(const char *label, uint64_t nbytes)
    void *tf_shm_map(int fd, uint64_t nbytes, int *err)
    int tf_shm_unmap(void *base, uint64_t nbytes)

cdef extern from "tf_cell.h":
    double tf_cell_get(const void *cell) noexcept
    void tf_cell_set(void *cell, double value) noexcept

cdef extern from "tf_ring.h":
    """
    #include <sys/eventfd.h>
    #include <unistd.h>
    #define TF_RING_SUBMIT(c) (&(c)->submit)
    #define TF_RING_COMPLETE(c) (&(c)->complete)
    #define TF_RING_GIVE(c) (&(c)->give)
    #define TF_RING_REPLY(c) (&(c)->reply)
    static inline void tf_bell_init(struct tf_bell *b) { b->magic = TF_CHANNEL_MAGIC; b->abi = TF_ABI_VERSION; }
    static inline void tf_bell_sleep(struct tf_bell *b) {
        static uint32_t sleeps;
        if (++sleeps == 0) ++sleeps;
        atomic_store_explicit(&b->asleep, sleeps, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst); /* our announcement before our last look at the rings */
    }
    static inline void tf_submit_offer(struct tf_submit_slot *s) {
        atomic_store_explicit(&s->claim, TF_OFFERED, memory_order_relaxed); /* seen with the slot, when it is published */
    }
    static inline void tf_bell_awake(struct tf_bell *b) {
        atomic_store_explicit(&b->asleep, 0, memory_order_relaxed);
    }
    static inline uint64_t tf_ring_head(struct tf_ring *r) {
        return atomic_load_explicit(&r->head, memory_order_acquire);
    }
    static inline void tf_channel_stop(struct tf_channel *c) {
        atomic_store_explicit(&c->stop, 1, memory_order_release);
        tf_worker_wake(c);
    }
    """
    struct tf_ring:
        pass
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    enum: TF_ABI_VERSION
    enum: TF_CELLS
    int eventfd(unsigned int value, int flags)
    tf_ring *TF_RING_SUBMIT(tf_channel *c) noexcept
    tf_ring *TF_RING_COMPLETE(tf_channel *c) noexcept
    tf_ring *TF_RING_GIVE(tf_channel *c) noexcept
    tf_ring *TF_RING_REPLY(tf_channel *c) noexcept
    void tf_bell_init(tf_bell *b) noexcept
    void tf_bell_sleep(tf_bell *b) noexcept
    void tf_bell_awake(tf_bell *b) noexcept
    uint64_t tf_ring_head(tf_ring *r) noexcept
    void tf_channel_stop(tf_channel *c) noexcept
    int tf_channel_core(tf_channel *c) noexcept
    void tf_submit_offer(tf_submit_slot *s) noexcept
    int tf_submit_recall(tf_channel *c, uint64_t last) noexcept
    uint64_t tf_channel_bytes() noexcept
    void tf_channel_init(tf_channel *c) noexcept
    void *tf_ring_reserve(tf_channel *c, tf_ring *r, uint32_t ahead) noexcept
    void tf_ring_publish(tf_ring *r, uint32_t n) noexcept
    void *tf_ring_peek(tf_channel *c, tf_ring *r, uint32_t ahead) noexcept
    void tf_ring_take(tf_ring *r, uint32_t n) noexcept
    int tf_worker_wake(tf_channel *c) noexcept
    int tf_reply_wake(tf_channel *c) noexcept
    tf_reply_slot *tf_reply_reserve(tf_channel *c) noexcept
    void tf_worker_nudge(tf_channel *c) noexcept
    ssize_t c_read "read"(int fd, void *buffer, size_t n) noexcept

cdef uint64_t BELL_BYTES = sizeof(tf_bell)
cdef uint64_t CELLS_BYTES = <uint64_t>TF_CELLS * sizeof(double)


cdef void *_new_file(str label, uint64_t nbytes, int *fd) except NULL:
    cdef int err = 0
    cdef void *base = NULL
    fd[0] = tf_shm_create(label.encode(), nbytes)
    if fd[0] >= 0:
        base = tf_shm_map(fd[0], nbytes, &err)
    if base == NULL:
        reason = os.strerror(-(err if fd[0] >= 0 else fd[0]))
        raise Internal(f"cannot create memory file {label!r} of {nbytes} bytes: {reason}")
    return base


def abi_version() -> int:
    """TF_ABI_VERSION: what a worker must say in its hello."""
    return TF_ABI_VERSION


cdef class Bell:
    """Raises Internal when the kernel refuses a descriptor."""

    def __cinit__(self):
        cdef int written = -1
        self.fd = self.eventfd = -1
        self.page = <tf_bell *>_new_file("tisfast-bell", BELL_BYTES, &written)
        tf_bell_init(self.page)
        try:
            self.fd = os.open(f"/proc/self/fd/{written}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Internal(f"cannot open the bell page for reading: {error.strerror}") from None
        finally:
            close(written)
        self.eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.eventfd < 0:
            raise Internal("cannot create an eventfd: too many open files?")

    def __dealloc__(self):
        if self.page != NULL:
            tf_shm_unmap(self.page, BELL_BYTES)
        if self.fd >= 0:
            close(self.fd)
        if self.eventfd >= 0:
            close(self.eventfd)

    cdef void announce_sleep(self) noexcept:
        tf_bell_sleep(self.page)

    cdef void awake(self) noexcept:
        tf_bell_awake(self.page)

    cdef bint clear(self) noexcept:
        cdef uint64_t count = 0
        return c_read(self.eventfd, &count, sizeof(count)) == sizeof(count)


cdef class Cells:
    """Raises Internal when the kernel refuses a descriptor."""

    def __cinit__(self):
        self.fd = -1
        self.numbers = <double *>_new_file("tisfast-cells", CELLS_BYTES, &self.fd)

    def __dealloc__(self):
        if self.numbers != NULL:
            tf_shm_unmap(self.numbers, CELLS_BYTES)
        if self.fd >= 0:
            close(self.fd)

    cdef double *_cell(self, uint32_t index) except NULL:
        if index >= TF_CELLS:
            raise IndexError(f"cell {index} of {TF_CELLS}")
        return self.numbers + index

    def cell(self, uint32_t index) -> float:
        """The number in a cell of the custom metrics."""
        return tf_cell_get(self._cell(index))

    def zero_cell(self, uint32_t index) -> None:
        """Make a cell 0."""
        tf_cell_set(self._cell(index), 0.0)


cdef class Channel:
    """Rings in a new memory file.  Raises Internal when the kernel refuses it."""

    def __cinit__(self):
        self.fd = -1
        self.nbytes = tf_channel_bytes()
        self.c = <tf_channel *>_new_file("tisfast-channel", self.nbytes, &self.fd)
        tf_channel_init(self.c)

    def __dealloc__(self):
        if self.c != NULL:
            tf_shm_unmap(self.c, self.nbytes)
        if self.fd >= 0:
            close(self.fd)

    cdef int64_t submit(
            self, uint64_t meta_offset, uint32_t meta_bytes, uint16_t batch_left, int64_t now, uint32_t sequence_slot,
            uint8_t flags) noexcept:
        cdef tf_submit_slot *slot = <tf_submit_slot *>tf_ring_reserve(self.c, TF_RING_SUBMIT(self.c), self.unpublished)
        if slot == NULL:
            return -1
        slot.kind = TF_EXEC
        slot.flags = flags
        slot.batch_left = batch_left
        slot.meta_bytes = meta_bytes
        slot.request = self.written
        slot.meta_offset = meta_offset
        slot.submit_ns = now
        slot.told = self.told
        slot.slot = sequence_slot
        tf_submit_offer(slot)
        self.unpublished += 1
        self.written += 1
        return <int64_t>slot.request

    cdef void publish(self) noexcept:
        if self.unpublished:
            tf_ring_publish(TF_RING_SUBMIT(self.c), self.unpublished)
            self.unpublished = 0
            tf_worker_wake(self.c)

    cdef bint next_answer(self, tf_complete_slot *out) noexcept:
        cdef void *slot = tf_ring_peek(self.c, TF_RING_COMPLETE(self.c), 0)
        if slot == NULL:
            return False
        memcpy(out, slot, sizeof(tf_complete_slot))  # the worker may write there again once it is taken
        tf_ring_take(TF_RING_COMPLETE(self.c), 1)
        return True

    cdef uint64_t taken(self) noexcept:
        return min(tf_ring_head(TF_RING_SUBMIT(self.c)), self.written)  # the worker may write nonsense there

    cdef bint recall(self, uint64_t last) noexcept:
        # Not beyond head: there the ring's slot may be that of another, later batch.
        return self.taken() <= last < self.written and tf_submit_recall(self.c, last) != 0

    cdef uint32_t room(self) noexcept:
        cdef uint64_t waiting = self.written - self.taken()
        return TF_SUBMIT_SLOTS - <uint32_t>waiting if waiting <= TF_SUBMIT_SLOTS else 0

    cdef void give(self, uint64_t block) noexcept:
        cdef tf_give_slot *slot = <tf_give_slot *>tf_ring_reserve(self.c, TF_RING_GIVE(self.c), 0)
        # Never NULL: a worker may have at most TF_OUTPUT_BLOCKS_MAX blocks out.  One that lies loses its own blocks.
        if slot != NULL:
            slot.block = block
            tf_ring_publish(TF_RING_GIVE(self.c), 1)

    cdef void nudge(self) noexcept:
        tf_worker_nudge(self.c)

    cdef bint reply(self, tf_reply_slot *answer) noexcept:
        cdef tf_reply_slot *slot = tf_reply_reserve(self.c)
        if slot == NULL:
            return False
        answer.told = self.told
        memcpy(slot, answer, sizeof(tf_reply_slot))
        tf_ring_publish(TF_RING_REPLY(self.c), 1)
        tf_reply_wake(self.c)
        return True

    def request_stop(self) -> None:
        """Tell the worker to leave its loop when submit is empty, and wake it."""
        tf_channel_stop(self.c)
