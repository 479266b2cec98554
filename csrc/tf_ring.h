/* Single-producer single-consumer rings of 64-byte slots, four to a channel, one channel to a worker.
 *
 *   submit    server -> worker   requests to execute
 *   complete  worker -> server   answers: one to a request, or any number up to the one with TF_FINAL (decoupled); calls
 *   give      server -> worker   output blocks that the front has sent and the worker may reuse
 *   reply     server -> worker   answers to the calls that its model makes of other models
 *
 * Thread contract: one thread on each side calls the producer functions of a ring, one the consumer functions.
 * `head` is advanced by the consumer BEFORE it acts on a slot, so after a crash the server knows what was taken:
 * slots at or beyond head were not executed and can go to another instance.
 *
 * Claims: a published batch that the worker has not begun can be taken back.  Both sides change one word, the `claim` of
 * the batch's last slot, from TF_OFFERED: the worker to TF_BEGUN before it advances head, the server to TF_RECALLED.
 * Who comes first has the batch.  The worker passes over a recalled batch without a look at its records.
 *
 * Sleeping: a worker sleeps on the futex word of its channel; the server sleeps in its event loop and is woken through
 * an eventfd shared by all workers.  Each side announces sleep, then looks once more (store-load fence), and the other
 * side rings only when it sees the announcement: no lost wake-up, no system call while both are busy.  A thread of the
 * worker that waits for a reply sleeps on a word of its own, so that it does not wake the loop and is not woken by it. */
#ifndef TF_RING_H
#define TF_RING_H

#include <stdatomic.h>
#include "tf_shm.h"

#define TF_CHANNEL_MAGIC 0x54495346u /* "TISF" */
#define TF_SLOT_BYTES 64u
#define TF_SUBMIT_SLOTS 256u    /* power of two; bounds what one instance may have queued in its ring */
#define TF_COMPLETE_SLOTS 1024u /* answers and releases; >= submit slots, and the worker waits when it is full */
#define TF_GIVE_SLOTS 4096u     /* >= TF_OUTPUT_BLOCKS_MAX, so that giving back never fails */
#define TF_OUTPUT_BLOCKS_MAX 4095u
#define TF_REPLY_SLOTS 1024u    /* answers to calls that the worker has not taken; beyond, the server keeps them */
#define TF_CELLS 65536u         /* of all custom metrics; 512 KiB of address space, touched as they are handed out */
#define TF_VAIN_SPINS_MAX 8u /* so many more waits were long than short: a side sleeps at once */

enum tf_slot_kind {
    TF_EXEC = 1,
    TF_ANSWER = 2,
    TF_ERROR = 3,
    TF_RELEASE = 4,  /* nobody in the worker refers to the request's input memory any more */
    TF_CLOSED = 5,   /* decoupled: ended without a further answer; status 0 by the model, else nobody was left to do it */
    TF_EXECUTED = 6, /* `execute` has returned, `batch` requests.  Decoupled: their answers come before or after it.
                        Else: of an execution with answers that are TF_EARLY, behind all its answers */
    TF_CALL = 7,        /* a model asks another model; `request` is the call's number, the block holds its record */
    TF_CALL_CANCEL = 8, /* nobody waits for the call's answer any more */
    TF_CALL_DONE = 9,   /* the memory of one of the call's answers is no longer referred to */
    TF_RESCHEDULE = 10, /* final for this round: the request goes back to its scheduler */
};
enum tf_slot_flags {
    TF_FINAL = 1,    /* last answer to this request */
    TF_RETAINED = 2, /* user code still holds the request's input memory: a TF_RELEASE follows */
    TF_EARLY = 4,    /* the request's execution goes on, and ends with TF_EXECUTED; not of decoupled models */
};
enum tf_submit_flags {
    TF_NULL = 1, /* padding of a direct sequence batch: not ready, and not answered */
};

enum tf_claim {
    TF_OFFERED = 0,
    TF_BEGUN = 1,    /* the worker executes it */
    TF_RECALLED = 2, /* the server has taken it back */
};

/* server -> worker.  A batch is `batch_left` + 1 consecutive slots, batch_left counting down to 0. */
struct tf_submit_slot {
    uint8_t kind; /* TF_EXEC */
    uint8_t flags; /* tf_submit_flags */
    uint16_t batch_left;
    uint32_t meta_bytes; /* request record, WIRE.md */
    uint64_t request;    /* the server's ticket, returned in every answer */
    uint64_t meta_offset; /* in the input arena */
    int64_t submit_ns;
    uint32_t told; /* messages sent on the share socket so far: to be read before the record (WIRE.md, Foreign tensors) */
    uint32_t slot; /* of the sequence within the instance; 0 where there are no sequences */
    _Atomic uint32_t claim; /* tf_claim; of a batch, its last slot's counts */
    uint8_t reserved[20];
};

/* worker -> server */
struct tf_complete_slot {
    uint8_t kind; /* all but TF_EXEC */
    uint8_t flags;
    uint16_t status; /* 0 for TF_ANSWER, else a Status of types.py */
    uint32_t meta_bytes; /* answer record or UTF-8 error text, in the output arena */
    uint64_t request;
    uint64_t block; /* handle of the output block that holds it, 0 for none */
    int64_t taken_ns, infer_start_ns; /* CLOCK_MONOTONIC; of the execution */
    int64_t infer_end_ns, done_ns;    /* the same; of the answer where the model is decoupled */
    uint32_t batch; /* requests of the execution, told once: with its first answer or with TF_EXECUTED, else 0 */
    uint32_t reserved;
};

/* server -> worker: 8 block handles to a slot would complicate the consumer; one handle, one slot. */
struct tf_give_slot {
    uint64_t block;
    uint8_t reserved[56];
};

/* server -> worker.  One answer to a call, or its end. */
struct tf_reply_slot {
    uint8_t kind;  /* TF_ANSWER or TF_ERROR */
    uint8_t flags; /* TF_FINAL: no further answer to this call */
    uint16_t status; /* 0 for TF_ANSWER, else a Status of types.py */
    uint32_t meta_bytes;  /* reply record or UTF-8 error text, in the input arena; 0: none, an answer without outputs */
    uint64_t call;        /* its number, from TF_CALL */
    uint64_t meta_offset;
    uint64_t answer; /* what TF_CALL_DONE is to name when the record and what it refers to may go; 0: nothing to let go */
    uint32_t told;   /* as a submit slot's */
    uint32_t zero;
    uint8_t reserved[24];
};

struct tf_ring {
    _Alignas(TF_CACHE_LINE) _Atomic uint64_t tail; /* producer's: slots written */
    uint64_t head_seen;                            /* producer's copy of head */
    _Alignas(TF_CACHE_LINE) _Atomic uint64_t head; /* consumer's: slots taken */
    uint64_t tail_seen;                            /* consumer's copy of tail */
    _Alignas(TF_CACHE_LINE) uint32_t slots;        /* constant after creation */
    uint32_t offset;                               /* of slot 0 from the channel's base */
};

struct tf_channel {
    uint32_t magic, abi;
    uint64_t nbytes;
    _Alignas(TF_CACHE_LINE) _Atomic uint32_t asleep; /* futex word: 1 while the worker sleeps or is about to */
    _Atomic uint32_t stop;                           /* nonzero: the worker leaves its loop when submit is empty */
    uint32_t vain_spins;                             /* the worker's own: waits that were long, less those that were short */
    _Atomic uint32_t nudge; /* set by the server: return from the wait once though there is no request */
    uint32_t rung;          /* the worker's own: the sleep of the server for which it has rung the bell */
    struct tf_ring submit, complete, give, reply;
    _Alignas(TF_CACHE_LINE) _Atomic uint32_t reply_asleep; /* futex word: 1 while a thread sleeps until reply is non-empty */
    uint32_t reply_vain_spins;                             /* as vain_spins */
    _Atomic uint32_t reply_full; /* 1: the server keeps replies back, and wants the bell when there is room */
};

/* One file for the whole server, which every worker can read and none can write to: no worker's stray write reaches another. */
struct tf_bell {
    uint32_t magic, abi;
    _Alignas(TF_CACHE_LINE) _Atomic uint32_t asleep; /* the number of the event loop's sleep; 0 while it is awake */
};

TF_EXPORT uint64_t tf_channel_bytes(void);
TF_EXPORT void tf_channel_init(struct tf_channel *c);
/* 0, or -EPROTO when magic, ABI or size are not ours. */
TF_EXPORT int tf_channel_check(const struct tf_channel *c, uint64_t nbytes);

/* Producer: address of the next free slot, or NULL when the ring is full; publish makes n written slots visible. */
TF_EXPORT void *tf_ring_reserve(struct tf_channel *c, struct tf_ring *r, uint32_t ahead);
TF_EXPORT void tf_ring_publish(struct tf_ring *r, uint32_t n);
/* Consumer: address of the slot `ahead` beyond head, or NULL when there is none (or
 * more than the ring holds: the producer lies); take advances head by n. */
TF_EXPORT void *tf_ring_peek(struct tf_channel *c, struct tf_ring *r, uint32_t ahead);
TF_EXPORT void tf_ring_take(struct tf_ring *r, uint32_t n);
TF_EXPORT uint64_t tf_ring_pending(const struct tf_ring *r);

/* Worker: begin the next n slots, which are one batch, and advance head past them.  1; 0 when the server has taken the batch
 * back, and nothing of it is to be looked at. */
TF_EXPORT int tf_submit_begin(struct tf_channel *c, uint32_t n);
/* Server: take back the batch whose last slot is the `last`th ever written.  1; 0 when the worker has begun it. */
TF_EXPORT int tf_submit_recall(struct tf_channel *c, uint64_t last);

/* Server: wake the worker if it sleeps.  Returns 1 if a system call was made. */
TF_EXPORT int tf_worker_wake(struct tf_channel *c);
/* Server: have an idle worker look at its share socket. */
TF_EXPORT void tf_worker_nudge(struct tf_channel *c);
/* Worker: wait until submit is non-empty, stop is set or the server nudges.  First yields the core for at most spin_ns,
 * then sleeps; where requests come too seldom for that to pay, it sleeps at once.
 * Returns the number of pending slots (0: stopped, nudged, or timeout_ns passed; timeout_ns < 0 waits without end). */
TF_EXPORT int64_t tf_worker_wait(struct tf_channel *c, int64_t spin_ns, int64_t timeout_ns);
/* Server: wake the thread that waits for replies, if it sleeps.  Returns 1 if a system call was made. */
TF_EXPORT int tf_reply_wake(struct tf_channel *c);
/* Server: the next free slot of reply, or NULL; then the worker's next take of replies rings the bell. */
TF_EXPORT struct tf_reply_slot *tf_reply_reserve(struct tf_channel *c);
/* Worker: wait until reply is non-empty, as tf_worker_wait does; one thread at a time.  Number of pending slots, 0 when
 * timeout_ns has passed. */
TF_EXPORT int64_t tf_reply_wait(struct tf_channel *c, int64_t spin_ns, int64_t timeout_ns);
/* Worker: n slots of reply were taken.  1 if the server waits for room there, and the bell must be rung. */
TF_EXPORT int tf_reply_took(struct tf_channel *c, uint32_t n);
/* Worker: map the bell's file read-only.  NULL when it cannot be mapped or its layout is not ours. */
TF_EXPORT const struct tf_bell *tf_bell_map(int fd);
/* Worker: ring the server's eventfd if its loop sleeps, once for each sleep.  1 if a system call was made, 0, or -errno. */
TF_EXPORT int tf_bell_ring(struct tf_channel *c, const struct tf_bell *b, int eventfd);

#endif
