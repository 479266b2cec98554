/* The allocator against a model: random takes and gives, no overlap, exact accounting, everything joins again. */
#include "tf_arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define CAP (64ull << 20)
#define LIVE_MAX 512

static void test_limits(void)
{
    CHECK(tf_arena_new(0, 0) == NULL);
    CHECK(tf_arena_new(TF_BLOCK_MIN - 1, 1) == NULL);
    struct tf_arena *a = tf_arena_new(1 << 20, 1 << 20);
    CHECK(tf_arena_take(a, (1 << 20) + 1) == 0);
    CHECK(tf_arena_take(a, UINT64_MAX) == 0);
    uint64_t all = tf_arena_take(a, 1 << 20);
    CHECK(all != 0 && tf_block_offset(all) == 0 && tf_arena_block_bytes(a, all) == 1 << 20);
    CHECK(tf_arena_take(a, 1) == 0);
    CHECK(tf_arena_give(a, all) == 0);
    CHECK(tf_arena_give(a, all) == -ESTALE);
    CHECK(tf_arena_give(a, 1ull << 39) == -EINVAL);
    CHECK(tf_arena_give(a, 0) == -ESTALE);
    uint64_t none = tf_arena_take(a, 0);
    CHECK(none != 0 && tf_arena_block_bytes(a, none) == TF_BLOCK_MIN);
    tf_arena_delete(a);
}

static void test_use_is_bounded_below_the_cap(void)
{
    struct tf_arena *a = tf_arena_new(1 << 20, 64 << 10);
    uint64_t half = tf_arena_take(a, 33 << 10); /* a 64 KiB block, of which nine pages count */
    CHECK(half != 0 && tf_arena_used_bytes(a) == 36 << 10);
    CHECK(tf_arena_cost_bytes(33 << 10) == 36 << 10 && tf_arena_cost_bytes(0) == TF_BLOCK_MIN);
    CHECK(tf_arena_cost_bytes(513) == 1024 && tf_arena_cost_bytes(2049) == 4096);
    CHECK(tf_arena_take(a, 32 << 10) == 0);
    CHECK(tf_arena_take(a, 28 << 10) != 0);
    tf_arena_delete(a);
}

static void test_a_stale_handle_is_refused_after_reuse(void)
{
    struct tf_arena *a = tf_arena_new(1 << 20, 1 << 20);
    uint64_t first = tf_arena_take(a, 700);
    CHECK(tf_arena_give(a, first) == 0);
    uint64_t second = tf_arena_take(a, 700);
    CHECK(tf_block_offset(first) == tf_block_offset(second) && first != second); /* last freed, first reused */
    CHECK(tf_arena_give(a, first) == -ESTALE && tf_arena_used_blocks(a) == 1);
    tf_arena_delete(a);
}

static void test_random_use_never_overlaps(unsigned seed)
{
    int err = 0, fd = tf_shm_create("test", CAP);
    unsigned char *base = tf_shm_map(fd, CAP, &err);
    CHECK(base != NULL);
    struct tf_arena *a = tf_arena_new(CAP, CAP);
    struct { uint64_t block, nbytes; unsigned char mark; } live[LIVE_MAX];
    size_t n = 0;
    srand(seed);
    for (int step = 0; step < 40000; step++) {
        if (n < LIVE_MAX && rand() % 2) {
            uint64_t nbytes = 1 + (uint64_t)rand() % (1u << (rand() % 20));
            uint64_t block = tf_arena_take(a, nbytes);
            if (!block) continue;
            uint64_t offset = tf_block_offset(block);
            CHECK(offset + nbytes <= CAP && tf_arena_block_bytes(a, block) >= nbytes);
            live[n].block = block;
            live[n].nbytes = nbytes;
            live[n].mark = (unsigned char)rand();
            base[offset] = base[offset + nbytes - 1] = live[n].mark;
            n++;
        } else if (n) {
            size_t i = (size_t)rand() % n;
            uint64_t offset = tf_block_offset(live[i].block);
            CHECK(base[offset] == live[i].mark && base[offset + live[i].nbytes - 1] == live[i].mark);
            CHECK(tf_arena_give(a, live[i].block) == 0);
            live[i] = live[--n];
        }
        if (step % 9999 == 0) tf_arena_trim(a, fd);
        if (step % 777 == 0) tf_arena_trim_top(a, fd, 4096);
    }
    CHECK(tf_arena_used_blocks(a) == n);
    while (n) CHECK(tf_arena_give(a, live[--n].block) == 0);
    CHECK(tf_arena_used_bytes(a) == 0 && tf_arena_used_blocks(a) == 0);
    uint64_t touched = tf_arena_touched_bytes(a);
    CHECK(touched > 4096 && tf_arena_trim_top(a, fd, 4096) == 4096 && tf_arena_touched_bytes(a) == touched - 4096);
    while (tf_arena_trim_top(a, fd, 1 << 20)) {}
    CHECK(tf_arena_touched_bytes(a) == 0 && tf_arena_trim(a, fd) == 0);
    CHECK(tf_arena_take(a, CAP) != 0); /* all neighbours joined: one block again */
    tf_arena_delete(a);
    tf_shm_unmap(base, CAP);
    close(fd);
}

int main(void)
{
    test_limits();
    test_use_is_bounded_below_the_cap();
    test_a_stale_handle_is_refused_after_reuse();
    for (unsigned seed = 1; seed <= 5; seed++) test_random_use_never_overlaps(seed);
    return RESULT();
}
