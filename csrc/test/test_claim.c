/* A worker that is killed at each instruction of taking a batch, or meets the server there: the batch has one fate. */
#define _GNU_SOURCE
#include "tf_ring.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define BATCH 3u
#define STEPS_MAX 10000u /* some fifty are needed, and hundreds under a sanitizer */

static struct tf_channel *channel;
static _Atomic bool *done; /* the worker has taken the batch, or passed over it */

/* Single steps need a processor whose atomic operations are one instruction each. */
#if defined(__x86_64__)
#define STEPPED true
#define STOP_HERE() __asm__ volatile("int3")
#else
#define STEPPED false
#define STOP_HERE() raise(SIGTRAP)
#endif

static void offer(void)
{
    tf_channel_init(channel);
    *done = false;
    for (uint32_t i = 0; i < BATCH; i++) {
        struct tf_submit_slot *s = tf_ring_reserve(channel, &channel->submit, i);
        CHECK(s != NULL);
        if (!s) return;
        s->batch_left = (uint16_t)(BATCH - 1 - i);
        atomic_store(&s->claim, TF_OFFERED);
    }
    tf_ring_publish(&channel->submit, BATCH);
}

static uint32_t claim_word(void)
{
    struct tf_submit_slot *first = tf_ring_peek(channel, &channel->submit, 0);
    if (!first) { /* taken: it still lies where it was */
        uint64_t head = atomic_load(&channel->submit.head);
        atomic_store(&channel->submit.head, head - BATCH);
        first = tf_ring_peek(channel, &channel->submit, BATCH - 1);
        uint32_t word = first ? atomic_load(&first->claim) : UINT32_MAX;
        atomic_store(&channel->submit.head, head);
        return word;
    }
    return atomic_load(&((struct tf_submit_slot *)tf_ring_peek(channel, &channel->submit, BATCH - 1))->claim);
}

/* A worker that stands before it takes the batch; 0 where processes may not be traced. */
static pid_t worker(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(100);
        STOP_HERE();
        int begun = tf_submit_begin(channel, BATCH);
        *done = true;
        _exit(begun);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return 0;
    return child;
}

/* After so many instructions; false when it has come to its end before. */
static bool step(pid_t child, uint32_t count, int *status)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, status, 0) != child) return false;
        if (!WIFSTOPPED(*status) || *done) return false;
    }
    return true;
}

static void end(pid_t child)
{
    int status = 0;
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

/* Killed after `count` instructions; which of the three states it leaves, -1 when it came to its end. */
static int killed_after(uint32_t count)
{
    int status = 0;
    offer();
    pid_t child = worker();
    if (!child) return -1;
    bool within = step(child, count, &status);
    end(child);
    if (!within) return -1;
    bool begun = claim_word() == TF_BEGUN, taken = tf_ring_pending(&channel->submit) == 0;
    if (taken && !begun) CHECK(!"what was not claimed is not taken");
    if (!taken) CHECK(tf_ring_pending(&channel->submit) == BATCH); /* all of a batch or nothing */
    CHECK(tf_submit_recall(channel, BATCH - 1) == !begun);
    return begun + taken;
}

/* The server takes back while the worker stands after `count` instructions, and the worker goes on. */
static int recalled_after(uint32_t count)
{
    int status = 0;
    offer();
    pid_t child = worker();
    if (!child) return -1;
    if (!step(child, count, &status)) {
        end(child);
        return -1;
    }
    bool recalled = tf_submit_recall(channel, BATCH - 1);
    CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == !recalled);
    CHECK(tf_ring_pending(&channel->submit) == 0);
    return recalled;
}

static void test_each_instruction(int (*after)(uint32_t), int states)
{
    bool seen[3] = {false, false, false};
    uint32_t count = 0;
    for (int state; count < STEPS_MAX && (state = after(count)) >= 0; count++) seen[state] = true;
    CHECK(count > 0 && count < STEPS_MAX);
    for (int state = 0; state < states; state++) CHECK(seen[state]);
}

int main(void)
{
    int err = 0, fd = tf_shm_create("test", tf_channel_bytes());
    channel = tf_shm_map(fd, tf_channel_bytes(), &err);
    done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!channel || done == MAP_FAILED) return 2;
    offer();
    pid_t child = STEPPED ? worker() : 0;
    if (!child) {
        printf("%s: skipped, no process can be stepped through here\n", __FILE__);
        return 0;
    }
    end(child);
    test_each_instruction(killed_after, 3);
    test_each_instruction(recalled_after, 2);
    return RESULT();
}
