/* One thread on each side, as server and worker: nothing lost, nothing twice, in order, and no sleep missed. */
#define _GNU_SOURCE
#include "tf_output.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"

#define REQUESTS 200000u
#define ANSWERS(request) (1 + (uint32_t)((request) % 3)) /* a stream: so many slots, the last with TF_FINAL */

static struct tf_channel *channel;
static struct tf_bell bell;
static int bell_fd;
static uint32_t sleeps;

static void test_layout(void)
{
    CHECK(tf_channel_check(channel, tf_channel_bytes()) == 0);
    CHECK(tf_channel_check(channel, tf_channel_bytes() + 1) == -EPROTO);
    channel->abi++;
    CHECK(tf_channel_check(channel, tf_channel_bytes()) == -EPROTO);
    channel->abi--;
}

static void test_full_and_empty(void)
{
    struct tf_ring *r = &channel->submit;
    CHECK(tf_ring_peek(channel, r, 0) == NULL);
    for (uint32_t i = 0; i < TF_SUBMIT_SLOTS; i++) {
        struct tf_submit_slot *s = tf_ring_reserve(channel, r, i);
        CHECK(s != NULL);
        s->request = i;
    }
    CHECK(tf_ring_reserve(channel, r, TF_SUBMIT_SLOTS) == NULL);
    CHECK(tf_ring_peek(channel, r, 0) == NULL); /* written, not published */
    tf_ring_publish(r, TF_SUBMIT_SLOTS);
    CHECK(tf_ring_pending(r) == TF_SUBMIT_SLOTS);
    for (uint32_t i = 0; i < TF_SUBMIT_SLOTS; i++) {
        struct tf_submit_slot *s = tf_ring_peek(channel, r, 0);
        CHECK(s != NULL && s->request == i);
        tf_ring_take(r, 1);
    }
    CHECK(tf_ring_pending(r) == 0 && tf_ring_reserve(channel, r, 0) != NULL);
}

static void test_lies(void)
{
    struct tf_ring *r = &channel->complete;
    uint32_t slots = r->slots, offset = r->offset;
    r->slots = 1u << 31;
    r->offset = 1u << 30;
    char *slot = tf_ring_reserve(channel, r, 0);
    CHECK(slot > (char *)channel && slot < (char *)channel + tf_channel_bytes());
    tf_ring_publish(r, 1u << 30);
    CHECK(tf_ring_peek(channel, r, 0) == NULL);
    atomic_store(&r->tail, 0);
    r->tail_seen = 0;
    r->slots = slots;
    r->offset = offset;
}

static void *worker(void *unused)
{
    (void)unused;
    for (;;) {
        /* Alternate between sleeping at once and yielding first: both must notice every publish. */
        int64_t n = tf_worker_wait(channel, rand() % 2 ? 20000 : 0, -1);
        if (n == 0) return NULL;
        struct tf_submit_slot *s;
        while ((s = tf_ring_peek(channel, &channel->submit, 0)) != NULL) {
            uint64_t request = s->request;
            tf_ring_take(&channel->submit, 1);
            for (uint32_t i = 1; i <= ANSWERS(request); i++) {
                struct tf_complete_slot *out;
                while ((out = tf_ring_reserve(channel, &channel->complete, 0)) == NULL) sched_yield();
                memset(out, 0, sizeof *out);
                out->kind = i < ANSWERS(request) ? TF_ANSWER : TF_CLOSED;
                out->flags = i < ANSWERS(request) ? 0 : TF_FINAL;
                out->meta_bytes = i;
                out->request = request;
                tf_ring_publish(&channel->complete, 1);
                tf_bell_ring(channel, &bell, bell_fd);
            }
        }
    }
}

static uint64_t drain(uint64_t expect)
{
    static uint32_t answer = 0;
    struct tf_complete_slot *s;
    while ((s = tf_ring_peek(channel, &channel->complete, 0)) != NULL) {
        if (s->request != expect || s->meta_bytes != ++answer) CHECK(!"a stream's slots are in order, none is missing");
        if (s->flags & TF_FINAL) {
            CHECK(answer == ANSWERS(expect));
            answer = 0;
            expect++;
        }
        tf_ring_take(&channel->complete, 1);
    }
    return expect;
}

static void test_two_threads(void)
{
    pthread_t thread;
    uint64_t sent = 0, seen = 0;
    pthread_create(&thread, NULL, worker, NULL);
    while (seen < REQUESTS) {
        uint32_t burst = (uint32_t)(rand() % 7), n = 0;
        while (n < burst && sent < REQUESTS) {
            struct tf_submit_slot *s = tf_ring_reserve(channel, &channel->submit, n);
            if (!s) break;
            s->request = sent++;
            n++;
        }
        tf_ring_publish(&channel->submit, n);
        tf_worker_wake(channel);
        seen = drain(seen);
        if (seen == sent) continue;
        /* Sleep as the event loop does: announce, look once more, wait for the bell. */
        atomic_store(&bell.asleep, ++sleeps);
        atomic_thread_fence(memory_order_seq_cst);
        uint64_t before = seen;
        seen = drain(seen);
        if (seen == before && sent - seen > 0) {
            struct pollfd p = {.fd = bell_fd, .events = POLLIN};
            int rang = poll(&p, 1, 10000);
            CHECK(rang == 1); /* a lost wake-up would hang for ever in production */
            if (rang != 1) break;
            uint64_t count;
            CHECK(read(bell_fd, &count, sizeof count) == sizeof count);
        }
        atomic_store(&bell.asleep, 0);
    }
    CHECK(seen == REQUESTS);
    atomic_store(&channel->stop, 1);
    tf_worker_wake(channel);
    pthread_join(thread, NULL);
}

/* Batches of 1 to 4 slots, some of which the server takes back at once: each is executed or taken back, never both, and a
 * record is not looked at after it was taken back (the server overwrites it, which ThreadSanitizer would see). */
#define BATCHES 50000u
#define RECORDS 1024u
static uint32_t records[RECORDS];
static _Atomic uint32_t executions[BATCHES];

static void *claiming_worker(void *unused)
{
    (void)unused;
    while (tf_worker_wait(channel, 20000, -1) != 0) {
        struct tf_submit_slot *s;
        while ((s = tf_ring_peek(channel, &channel->submit, 0)) != NULL) {
            uint32_t n = s->batch_left + 1u;
            uint64_t batch = s->request, at = s->meta_offset;
            if (!tf_submit_begin(channel, n)) continue;
            CHECK(records[at] == (uint32_t)batch);
            atomic_fetch_add_explicit(&executions[batch], 1, memory_order_release);
        }
    }
    return NULL;
}

static void test_claims(void)
{
    static uint64_t last[BATCHES]; /* ticket of each batch's last slot */
    static bool recalled[BATCHES];
    uint64_t written = 0, batch = 0, kept = 0, back = 0;
    pthread_t thread;
    tf_channel_init(channel);
    pthread_create(&thread, NULL, claiming_worker, NULL);
    while (batch < BATCHES) {
        uint32_t n = 1 + (uint32_t)(rand() % 4);
        struct tf_submit_slot *s = NULL;
        for (uint32_t i = 0; i < n; i++) {
            while ((s = tf_ring_reserve(channel, &channel->submit, i)) == NULL) sched_yield();
            s->batch_left = (uint16_t)(n - 1 - i);
            s->request = batch;
            s->meta_offset = batch % RECORDS;
            atomic_store_explicit(&s->claim, TF_OFFERED, memory_order_relaxed);
        }
        /* Who used this record before was executed, or taken back. */
        while (batch >= RECORDS && !recalled[batch - RECORDS] &&
               !atomic_load_explicit(&executions[batch - RECORDS], memory_order_acquire))
            sched_yield();
        records[batch % RECORDS] = (uint32_t)batch;
        written += n;
        last[batch] = written - 1;
        tf_ring_publish(&channel->submit, n);
        tf_worker_wake(channel);
        batch++;
        if (rand() % 3) continue;
        uint64_t one = batch - 1 - (uint64_t)rand() % (batch < 8 ? batch : 8);
        if (recalled[one] || last[one] + TF_SUBMIT_SLOTS < written) continue; /* its slot may be another's by now */
        if (tf_submit_recall(channel, last[one])) {
            recalled[one] = true;
            records[one % RECORDS] = UINT32_MAX;
        }
    }
    atomic_store(&channel->stop, 1);
    tf_worker_wake(channel);
    pthread_join(thread, NULL);
    for (uint64_t i = 0; i < BATCHES; i++) {
        uint32_t times = atomic_load(&executions[i]);
        if (times + recalled[i] != 1) CHECK(!"a batch is executed or taken back, once");
        if (recalled[i]) back++;
        else kept++;
    }
    CHECK(kept > 0 && back > 0);
    tf_channel_init(channel);
}

static void test_wait_times_out(void)
{
    atomic_store(&channel->stop, 0);
    int64_t start = tf_now_ns();
    CHECK(tf_worker_wait(channel, 0, 2000000) == 0);
    CHECK(tf_now_ns() - start >= 2000000);
}

/* Waits are short or long by what yielding could bridge, asleep too; where most are long a worker sleeps at once. */
static void test_vain_spins(void)
{
    channel->vain_spins = 0;
    for (uint32_t longs = 1; longs <= TF_VAIN_SPINS_MAX + 2; longs++) {
        CHECK(tf_worker_wait(channel, 1000, 100000) == 0);
        CHECK(channel->vain_spins == (longs < TF_VAIN_SPINS_MAX ? longs : TF_VAIN_SPINS_MAX));
    }
    int64_t start = tf_now_ns();
    CHECK(tf_worker_wait(channel, 1000000000, 1000000) == 0);
    CHECK(tf_now_ns() - start < 1000000000); /* it slept, and did not yield for all that time */
    CHECK(channel->vain_spins == TF_VAIN_SPINS_MAX - 1);
    channel->vain_spins = 0;
}

/* An idle worker returns once for a nudge; one with requests keeps it until it is idle. */
static void test_nudge(void)
{
    struct tf_ring *r = &channel->submit;
    tf_worker_nudge(channel);
    CHECK(tf_worker_wait(channel, 0, -1) == 0);
    CHECK(tf_ring_reserve(channel, r, 0) != NULL);
    tf_ring_publish(r, 1);
    tf_worker_nudge(channel);
    CHECK(tf_worker_wait(channel, 0, -1) == 1);
    tf_ring_take(r, 1);
    CHECK(tf_worker_wait(channel, 0, -1) == 0);
    CHECK(tf_worker_wait(channel, 0, 1000) == 0); /* by its time: the nudge is spent */
}

/* Replies: the server answers more than the ring holds, and waits for the bell when there is no room; a thread of the
 * worker takes them, asleep or yielding. */
#define REPLIES 300000u

static void *reply_reader(void *unused)
{
    (void)unused;
    uint64_t seen = 0;
    while (seen < REPLIES) {
        int64_t n = tf_reply_wait(channel, rand() % 2 ? 20000 : 0, -1);
        if (n <= 0) CHECK(!"a wait without end ends with a reply");
        for (int64_t i = 0; i < n; i++) {
            struct tf_reply_slot *s = tf_ring_peek(channel, &channel->reply, (uint32_t)i);
            if (!s || s->call != seen || s->told != (uint32_t)seen) CHECK(!"replies come in order, none is missing");
            seen++;
        }
        if (tf_reply_took(channel, (uint32_t)n)) tf_bell_ring(channel, &bell, bell_fd);
    }
    return NULL;
}

static bool put_reply(uint64_t number)
{
    struct tf_reply_slot *s = tf_reply_reserve(channel);
    if (!s) return false;
    memset(s, 0, sizeof *s);
    s->call = number;
    s->told = (uint32_t)number;
    tf_ring_publish(&channel->reply, 1);
    tf_reply_wake(channel);
    return true;
}

static void test_replies(void)
{
    pthread_t thread;
    uint64_t sent = 0;
    pthread_create(&thread, NULL, reply_reader, NULL);
    while (sent < REPLIES) {
        if (put_reply(sent)) {
            sent++;
            if (rand() % 5000 == 0) usleep(50); /* let the reader fall asleep */
            continue;
        }
        atomic_store(&bell.asleep, ++sleeps);
        atomic_thread_fence(memory_order_seq_cst);
        if (!put_reply(sent)) {
            struct pollfd p = {.fd = bell_fd, .events = POLLIN};
            int rang = poll(&p, 1, 10000);
            CHECK(rang == 1); /* else answers would be kept back for ever */
            if (rang != 1) break;
            uint64_t count;
            CHECK(read(bell_fd, &count, sizeof count) == sizeof count);
        } else {
            sent++;
        }
        atomic_store(&bell.asleep, 0);
    }
    pthread_join(thread, NULL);
    CHECK(tf_ring_pending(&channel->reply) == 0);
    int64_t start = tf_now_ns();
    CHECK(tf_reply_wait(channel, 0, 2000000) == 0);
    CHECK(tf_now_ns() - start >= 2000000);
}

/* The worker's output arena: no more blocks than the give ring can bring back, and they come back. */
static void test_output(void)
{
    struct tf_arena *a = tf_arena_new(16u << 20, 16u << 20);
    uint64_t block, taken = 0;
    while ((block = tf_output_take(a, 1)) != 0) {
        struct tf_give_slot *s = tf_ring_reserve(channel, &channel->give, 0);
        CHECK(s != NULL);
        if (!s) break;
        s->block = block;
        tf_ring_publish(&channel->give, 1);
        taken++;
    }
    CHECK(taken == TF_OUTPUT_BLOCKS_MAX);
    CHECK(tf_output_collect(channel, a) == TF_OUTPUT_BLOCKS_MAX);
    CHECK(tf_arena_used_blocks(a) == 0 && tf_output_collect(channel, a) == 0);
    tf_arena_delete(a);
}

int main(void)
{
    int err = 0, fd = tf_shm_create("test", tf_channel_bytes());
    channel = tf_shm_map(fd, tf_channel_bytes(), &err);
    if (!channel) return 2;
    tf_channel_init(channel);
    bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    test_layout();
    test_full_and_empty();
    test_lies();
    test_two_threads();
    test_claims();
    test_wait_times_out();
    test_vain_spins();
    test_nudge();
    test_replies();
    test_output();
    return RESULT();
}
