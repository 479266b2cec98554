/* Rings, sleep and wake; see tf_ring.h for who may call what. */
#define _GNU_SOURCE
#include "tf_ring.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct tf_submit_slot) == TF_SLOT_BYTES, "one slot, one cache line");
_Static_assert(sizeof(struct tf_complete_slot) == TF_SLOT_BYTES, "one slot, one cache line");
_Static_assert(sizeof(struct tf_give_slot) == TF_SLOT_BYTES, "one slot, one cache line");
_Static_assert(sizeof(struct tf_reply_slot) == TF_SLOT_BYTES, "one slot, one cache line");

#define SLOTS_OFFSET ((uint32_t)((sizeof(struct tf_channel) + 4095u) & ~4095u))

uint64_t tf_channel_bytes(void)
{
    return SLOTS_OFFSET + (uint64_t)(TF_SUBMIT_SLOTS + TF_COMPLETE_SLOTS + TF_GIVE_SLOTS + TF_REPLY_SLOTS) * TF_SLOT_BYTES;
}

static uint32_t ring_init(struct tf_ring *r, uint32_t slots, uint32_t offset)
{
    r->slots = slots;
    r->offset = offset;
    return offset + slots * TF_SLOT_BYTES;
}

void tf_channel_init(struct tf_channel *c)
{
    memset(c, 0, sizeof *c);
    c->abi = TF_ABI_VERSION;
    c->nbytes = tf_channel_bytes();
    uint32_t next = ring_init(&c->submit, TF_SUBMIT_SLOTS, SLOTS_OFFSET);
    next = ring_init(&c->complete, TF_COMPLETE_SLOTS, next);
    next = ring_init(&c->give, TF_GIVE_SLOTS, next);
    ring_init(&c->reply, TF_REPLY_SLOTS, next);
    c->magic = TF_CHANNEL_MAGIC;
}

int tf_channel_check(const struct tf_channel *c, uint64_t nbytes)
{
    if (nbytes != tf_channel_bytes()) return -EPROTO;
    return c->magic == TF_CHANNEL_MAGIC && c->abi == TF_ABI_VERSION && c->nbytes == nbytes ? 0 : -EPROTO;
}

/* A ring's geometry as compiled in: what lies in shared memory the other side may have overwritten. */
struct geometry {
    uint32_t slots, first; /* first: slots of the rings before it */
};

static struct geometry geometry_of(const struct tf_channel *c, const struct tf_ring *r)
{
    if (r == &c->complete) return (struct geometry){TF_COMPLETE_SLOTS, TF_SUBMIT_SLOTS};
    if (r == &c->submit) return (struct geometry){TF_SUBMIT_SLOTS, 0};
    if (r == &c->give) return (struct geometry){TF_GIVE_SLOTS, TF_SUBMIT_SLOTS + TF_COMPLETE_SLOTS};
    return (struct geometry){TF_REPLY_SLOTS, TF_SUBMIT_SLOTS + TF_COMPLETE_SLOTS + TF_GIVE_SLOTS};
}

static void *slot_at(struct tf_channel *c, struct geometry g, uint64_t index)
{
    return (char *)c + SLOTS_OFFSET + (g.first + (index & (g.slots - 1))) * TF_SLOT_BYTES;
}

void *tf_ring_reserve(struct tf_channel *c, struct tf_ring *r, uint32_t ahead)
{
    struct geometry g = geometry_of(c, r);
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed) + ahead;
    if (tail - r->head_seen >= g.slots) {
        r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
        if (tail - r->head_seen >= g.slots) return NULL;
    }
    return slot_at(c, g, tail);
}

void tf_ring_publish(struct tf_ring *r, uint32_t n)
{
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    atomic_store_explicit(&r->tail, tail + n, memory_order_release);
}

void *tf_ring_peek(struct tf_channel *c, struct tf_ring *r, uint32_t ahead)
{
    struct geometry g = geometry_of(c, r);
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed) + ahead;
    if (head >= r->tail_seen) {
        r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
        if (head >= r->tail_seen) return NULL;
    }
    if (r->tail_seen - head > g.slots) return NULL; /* no producer of ours has written so far ahead */
    return slot_at(c, g, head);
}

void tf_ring_take(struct tf_ring *r, uint32_t n)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    atomic_store_explicit(&r->head, head + n, memory_order_release);
}

uint64_t tf_ring_pending(const struct tf_ring *r)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    return atomic_load_explicit(&r->tail, memory_order_acquire) - head;
}

/* Whether `claim` was still TF_OFFERED, and is `mine` now. */
static int claim(struct tf_channel *c, uint64_t index, uint32_t mine)
{
    struct tf_submit_slot *slot = slot_at(c, geometry_of(c, &c->submit), index);
    uint32_t offered = TF_OFFERED;
    return atomic_compare_exchange_strong_explicit(&slot->claim, &offered, mine, memory_order_acq_rel, memory_order_acquire);
}

int tf_submit_begin(struct tf_channel *c, uint32_t n)
{
    uint64_t head = atomic_load_explicit(&c->submit.head, memory_order_relaxed);
    int begun = claim(c, head + n - 1, TF_BEGUN);
    tf_ring_take(&c->submit, n); /* after the claim: a worker that dies in between has begun nothing */
    return begun;
}

int tf_submit_recall(struct tf_channel *c, uint64_t last) { return claim(c, last, TF_RECALLED); }

/* Wake whoever sleeps on this word. */
static int wake(_Atomic uint32_t *asleep)
{
    atomic_thread_fence(memory_order_seq_cst); /* our publish before our look at `asleep` */
    if (!atomic_load_explicit(asleep, memory_order_relaxed)) return 0;
    if (!atomic_exchange_explicit(asleep, 0, memory_order_acq_rel)) return 0;
    syscall(SYS_futex, asleep, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return 1;
}

int tf_worker_wake(struct tf_channel *c) { return wake(&c->asleep); }
int tf_reply_wake(struct tf_channel *c) { return wake(&c->reply_asleep); }

void tf_worker_nudge(struct tf_channel *c)
{
    atomic_store_explicit(&c->nudge, 1, memory_order_release);
    tf_worker_wake(c);
}

static int ready(struct tf_channel *c)
{
    return tf_ring_pending(&c->submit) != 0 || atomic_load_explicit(&c->stop, memory_order_acquire) != 0 ||
           atomic_load_explicit(&c->nudge, memory_order_acquire) != 0;
}

/* A nudge that meets a busy worker waits until it is idle.  An exchange, as a plain store could become visible after
 * the worker's look at what it was nudged for, and wipe out the next nudge. */
static int64_t waited(struct tf_channel *c)
{
    int64_t pending = (int64_t)tf_ring_pending(&c->submit);
    if (pending == 0) atomic_exchange_explicit(&c->nudge, 0, memory_order_acq_rel);
    return pending;
}

/* A thread of the worker that waits: on which word, and for what. */
struct waiter {
    _Atomic uint32_t *asleep;
    uint32_t *vain_spins;
    int (*ready)(struct tf_channel *);
};

/* Up to TF_VAIN_SPINS_MAX: waits that yielding could not bridge, less those that it could.  Asleep too these are seen. */
static void count(uint32_t *vain_spins, int is_short)
{
    if (is_short)
        *vain_spins -= *vain_spins > 0;
    else
        *vain_spins += *vain_spins < TF_VAIN_SPINS_MAX;
}

static void wait_until_ready(struct tf_channel *c, struct waiter w, int64_t spin_ns, int64_t timeout_ns)
{
    if (w.ready(c)) return;
    int64_t start = tf_now_ns();
    /* A core that halts costs some 20 us to wake inside a virtual machine; one that yields costs none. */
    while (*w.vain_spins < TF_VAIN_SPINS_MAX && tf_now_ns() - start < spin_ns) {
        sched_yield();
        if (!w.ready(c)) continue;
        count(w.vain_spins, 1);
        return;
    }
    while (!w.ready(c)) {
        atomic_store_explicit(w.asleep, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst); /* our announcement before our last look */
        if (w.ready(c)) break;
        int64_t left = timeout_ns - (tf_now_ns() - start);
        if (timeout_ns >= 0 && left <= 0) break;
        struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        syscall(SYS_futex, w.asleep, FUTEX_WAIT, 1, timeout_ns < 0 ? NULL : &t, NULL, 0);
    }
    atomic_store_explicit(w.asleep, 0, memory_order_relaxed);
    count(w.vain_spins, tf_now_ns() - start < spin_ns);
}

int64_t tf_worker_wait(struct tf_channel *c, int64_t spin_ns, int64_t timeout_ns)
{
    wait_until_ready(c, (struct waiter){&c->asleep, &c->vain_spins, ready}, spin_ns, timeout_ns);
    return waited(c);
}

static int has_reply(struct tf_channel *c) { return tf_ring_pending(&c->reply) != 0; }

int64_t tf_reply_wait(struct tf_channel *c, int64_t spin_ns, int64_t timeout_ns)
{
    wait_until_ready(c, (struct waiter){&c->reply_asleep, &c->reply_vain_spins, has_reply}, spin_ns, timeout_ns);
    return (int64_t)tf_ring_pending(&c->reply);
}

struct tf_reply_slot *tf_reply_reserve(struct tf_channel *c)
{
    struct tf_reply_slot *slot = tf_ring_reserve(c, &c->reply, 0);
    if (slot != NULL) return slot;
    atomic_store_explicit(&c->reply_full, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* our announcement before our last look */
    return tf_ring_reserve(c, &c->reply, 0);
}

int tf_reply_took(struct tf_channel *c, uint32_t n)
{
    tf_ring_take(&c->reply, n);
    atomic_thread_fence(memory_order_seq_cst); /* our taking before our look at `reply_full` */
    if (!atomic_load_explicit(&c->reply_full, memory_order_relaxed)) return 0;
    return atomic_exchange_explicit(&c->reply_full, 0, memory_order_acq_rel) != 0;
}

const struct tf_bell *tf_bell_map(int fd)
{
    const struct tf_bell *b = mmap(NULL, sizeof *b, PROT_READ, MAP_SHARED, fd, 0);
    if (b == MAP_FAILED) return NULL;
    if (b->magic == TF_CHANNEL_MAGIC && b->abi == TF_ABI_VERSION) return b;
    munmap((void *)b, sizeof *b);
    return NULL;
}

int tf_bell_ring(struct tf_channel *c, const struct tf_bell *b, int eventfd)
{
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t sleep = atomic_load_explicit(&b->asleep, memory_order_relaxed);
    if (sleep == 0 || sleep == c->rung) return 0;
    c->rung = sleep; /* other workers may ring, too: one more number in the eventfd */
    uint64_t one = 1;
    return write(eventfd, &one, sizeof one) == (ssize_t)sizeof one ? 1 : -errno;
}
