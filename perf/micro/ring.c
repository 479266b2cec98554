/* Rings by themselves: the cost of a slot, and of a round trip between two processes that sleep or yield. */
#define _GNU_SOURCE
#include "tf_ring.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 20000000u
#define TRIPS 20000u

static struct tf_channel *channel;
static struct tf_bell *bell;
static int bell_fd;
static uint32_t sleeps;

static void slots(void)
{
    int64_t start = tf_now_ns();
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct tf_submit_slot *in = tf_ring_reserve(channel, &channel->submit, 0);
        in->request = i;
        tf_ring_publish(&channel->submit, 1);
        struct tf_submit_slot *out = tf_ring_peek(channel, &channel->submit, 0);
        if (out->request != i) abort();
        tf_ring_take(&channel->submit, 1);
    }
    printf("ring_slot %.1f\n", (double)(tf_now_ns() - start) / SLOTS);
}

static void serve(int64_t spin_ns)
{
    while (tf_worker_wait(channel, spin_ns, -1) > 0) {
        tf_ring_take(&channel->submit, 1);
        tf_ring_reserve(channel, &channel->complete, 0);
        tf_ring_publish(&channel->complete, 1);
        tf_bell_ring(channel, bell, bell_fd);
    }
}

static void await_answer(int64_t spin_ns)
{
    int64_t start = tf_now_ns();
    while (!tf_ring_peek(channel, &channel->complete, 0)) {
        if (tf_now_ns() - start < spin_ns) {
            sched_yield();
            continue;
        }
        atomic_store(&bell->asleep, ++sleeps);
        atomic_thread_fence(memory_order_seq_cst);
        if (tf_ring_peek(channel, &channel->complete, 0)) break;
        struct pollfd p = {.fd = bell_fd, .events = POLLIN};
        poll(&p, 1, -1);
        uint64_t count;
        if (read(bell_fd, &count, sizeof count) < 0) continue;
    }
    atomic_store(&bell->asleep, 0);
    tf_ring_take(&channel->complete, 1);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void trips(const char *name, int64_t spin_ns)
{
    static int64_t took[TRIPS];
    tf_channel_init(channel);
    int pid = fork();
    if (pid == 0) {
        serve(spin_ns);
        _exit(0);
    }
    for (uint32_t i = 0; i < TRIPS; i++) {
        int64_t start = tf_now_ns();
        tf_ring_reserve(channel, &channel->submit, 0);
        tf_ring_publish(&channel->submit, 1);
        tf_worker_wake(channel);
        await_answer(spin_ns);
        took[i] = tf_now_ns() - start;
    }
    atomic_store(&channel->stop, 1);
    tf_worker_wake(channel);
    waitpid(pid, NULL, 0);
    qsort(took, TRIPS, sizeof took[0], compare);
    printf("ring_round_trip_%s_p50 %.1f\n", name, (double)took[TRIPS / 2]);
}

int main(void)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS;
    channel = mmap(NULL, tf_channel_bytes(), PROT_READ | PROT_WRITE, flags, -1, 0);
    bell = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    bell_fd = eventfd(0, EFD_NONBLOCK);
    tf_channel_init(channel);
    slots();
    fflush(stdout);
    trips("sleeping", 0);
    fflush(stdout);
    trips("yielding", 50000);
    return 0;
}
