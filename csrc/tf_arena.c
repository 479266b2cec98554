/* Buddy allocator with last-in first-out lists in front; see tf_arena.h. */
#define _GNU_SOURCE
#include "tf_arena.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define NONE UINT32_MAX
#define PAGE 4096u
#define HANDLE_UNITS ((1ull << 40) - 1)
#define GENERATIONS 0xffffffu
#define RECENT_BYTES_MAX (64ull << 20) /* beyond, recent blocks are joined before fresh memory is touched */
#define TRIM_KEEP_BYTES (64u << 10)    /* smaller holes are not worth a system call */

enum state { INSIDE = 0, FREE, RECENT, USED }; /* INSIDE: not the first unit of a block */

struct unit {
    uint32_t next, prev; /* list links, of first units of FREE and RECENT blocks */
    uint32_t generation; /* counts uses of a block that starts here; never 0 when USED */
    uint8_t order, state;
    uint16_t reserved;
    uint64_t counted; /* bytes this block adds to `used`, while USED */
};

struct tf_arena {
    struct unit *units; /* sparse anonymous memory: only first units are touched */
    uint32_t unit_count;
    uint32_t free[TF_ORDERS], recent[TF_ORDERS];
    uint64_t recent_bytes, used, used_max, blocks, touched;
};

static uint64_t order_bytes(unsigned order) { return (uint64_t)TF_BLOCK_MIN << order; }

static unsigned order_for(uint64_t nbytes)
{
    if (nbytes <= TF_BLOCK_MIN) return 0;
    return 64u - (unsigned)__builtin_clzll((nbytes - 1) / TF_BLOCK_MIN);
}

static void push(struct tf_arena *a, uint32_t *list, uint32_t u, unsigned order, enum state state)
{
    struct unit *x = &a->units[u];
    x->order = (uint8_t)order;
    x->state = (uint8_t)state;
    x->prev = NONE;
    x->next = list[order];
    if (x->next != NONE) a->units[x->next].prev = u;
    list[order] = u;
}

static void unlink_unit(struct tf_arena *a, uint32_t *list, uint32_t u)
{
    struct unit *x = &a->units[u];
    if (x->prev != NONE) a->units[x->prev].next = x->next;
    else list[x->order] = x->next;
    if (x->next != NONE) a->units[x->next].prev = x->prev;
    x->state = INSIDE;
}

/* Put a block into the buddy lists, joined with its free neighbours. */
static void join(struct tf_arena *a, uint32_t u, unsigned order)
{
    while (order + 1 < TF_ORDERS) {
        uint64_t buddy = u ^ (1ull << order);
        if (buddy + (1ull << order) > a->unit_count) break;
        struct unit *b = &a->units[buddy];
        if (b->state != FREE || b->order != order) break;
        unlink_unit(a, a->free, (uint32_t)buddy);
        a->units[u].state = INSIDE;
        if (buddy < u) u = (uint32_t)buddy;
        order++;
    }
    push(a, a->free, u, order, FREE);
}

static void join_recent(struct tf_arena *a)
{
    for (unsigned order = 0; order < TF_ORDERS; order++) {
        while (a->recent[order] != NONE) {
            uint32_t u = a->recent[order];
            unlink_unit(a, a->recent, u);
            join(a, u, order);
        }
    }
    a->recent_bytes = 0;
}

static uint32_t split(struct tf_arena *a, unsigned order)
{
    unsigned from = order;
    while (from < TF_ORDERS && a->free[from] == NONE) from++;
    if (from == TF_ORDERS) return NONE;
    uint32_t u = a->free[from];
    unlink_unit(a, a->free, u);
    while (from > order) {
        from--;
        push(a, a->free, u + (1u << from), from, FREE);
    }
    return u;
}

static uint32_t find(struct tf_arena *a, unsigned order)
{
    uint32_t u = a->recent[order];
    if (u != NONE) {
        unlink_unit(a, a->recent, u);
        a->recent_bytes -= order_bytes(order);
        return u;
    }
    if (a->recent_bytes > RECENT_BYTES_MAX) join_recent(a);
    u = split(a, order);
    if (u != NONE || a->recent_bytes == 0) return u;
    join_recent(a);
    return split(a, order);
}

struct tf_arena *tf_arena_new(uint64_t cap_bytes, uint64_t use_bytes_max)
{
    uint64_t count = cap_bytes / TF_BLOCK_MIN;
    if (count == 0 || count >= NONE) return NULL;
    struct tf_arena *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    a->units = mmap(NULL, count * sizeof *a->units, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (a->units == MAP_FAILED) {
        free(a);
        return NULL;
    }
    a->unit_count = (uint32_t)count;
    a->used_max = use_bytes_max;
    for (unsigned i = 0; i < TF_ORDERS; i++) a->free[i] = a->recent[i] = NONE;
    /* Largest aligned powers of two from the bottom up.  Crumbs at the ragged end are left out: being small they would
     * be handed out first, far from everything else. */
    uint64_t crumb = count / 16;
    for (uint64_t u = 0; u < count;) {
        unsigned order = TF_ORDERS - 1;
        while ((u & ((1ull << order) - 1)) != 0 || u + (1ull << order) > count) order--;
        if (1ull << order < crumb) break;
        push(a, a->free, (uint32_t)u, order, FREE);
        u += 1ull << order;
    }
    return a;
}

void tf_arena_delete(struct tf_arena *a)
{
    if (!a) return;
    munmap(a->units, (size_t)a->unit_count * sizeof *a->units);
    free(a);
}

uint64_t tf_arena_cost_bytes(uint64_t nbytes)
{
    uint64_t block = order_bytes(order_for(nbytes));
    return block < PAGE ? block : (nbytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

uint64_t tf_arena_take(struct tf_arena *a, uint64_t nbytes)
{
    if (nbytes > (uint64_t)a->unit_count * TF_BLOCK_MIN) return 0;
    unsigned order = order_for(nbytes);
    uint64_t counted = tf_arena_cost_bytes(nbytes);
    if (order >= TF_ORDERS || a->used + counted > a->used_max) return 0;
    uint32_t u = find(a, order);
    if (u == NONE) return 0;
    struct unit *x = &a->units[u];
    x->order = (uint8_t)order;
    x->state = USED;
    x->counted = counted;
    x->generation = x->generation % GENERATIONS + 1;
    a->used += counted;
    a->blocks++;
    uint64_t end = (uint64_t)u * TF_BLOCK_MIN + counted;
    if (end > a->touched) a->touched = end;
    return (uint64_t)x->generation << 40 | u;
}

static struct unit *used_unit(const struct tf_arena *a, uint64_t block)
{
    uint64_t u = block & HANDLE_UNITS;
    if (u >= a->unit_count) return NULL;
    struct unit *x = &a->units[u];
    return x->state == USED && x->generation == block >> 40 ? x : NULL;
}

int tf_arena_give(struct tf_arena *a, uint64_t block)
{
    struct unit *x = used_unit(a, block);
    if (!x) return (block & HANDLE_UNITS) >= a->unit_count ? -EINVAL : -ESTALE;
    assert(a->blocks > 0 && a->used >= x->counted);
    a->blocks--;
    a->used -= x->counted;
    a->recent_bytes += order_bytes(x->order);
    push(a, a->recent, (uint32_t)(x - a->units), x->order, RECENT);
    return 0;
}

uint64_t tf_arena_block_bytes(const struct tf_arena *a, uint64_t block)
{
    const struct unit *x = used_unit(a, block);
    return x ? order_bytes(x->order) : 0;
}

uint64_t tf_arena_used_bytes(const struct tf_arena *a) { return a->used; }
uint64_t tf_arena_used_blocks(const struct tf_arena *a) { return a->blocks; }
uint64_t tf_arena_touched_bytes(const struct tf_arena *a) { return a->touched; }

uint64_t tf_arena_trim(struct tf_arena *a, int fd)
{
    uint64_t discarded = 0, top = a->touched;
    join_recent(a);
    for (unsigned order = 0; order < TF_ORDERS; order++) {
        for (uint32_t u = a->free[order]; u != NONE; u = a->units[u].next) {
            uint64_t offset = (uint64_t)u * TF_BLOCK_MIN;
            if (offset >= a->touched || order_bytes(order) < TRIM_KEEP_BYTES) continue;
            uint64_t end = offset + order_bytes(order);
            if (end > a->touched) end = a->touched;
            if (tf_shm_discard(fd, offset, end - offset) == 0) discarded += end - offset;
            if (end == a->touched) top = offset;
        }
    }
    a->touched = top;
    return discarded;
}

uint64_t tf_arena_trim_top(struct tf_arena *a, int fd, uint64_t most)
{
    join_recent(a);
    for (unsigned order = 0; order < TF_ORDERS; order++) {
        for (uint32_t u = a->free[order]; u != NONE; u = a->units[u].next) {
            uint64_t start = (uint64_t)u * TF_BLOCK_MIN, end = a->touched;
            if (start >= end || start + order_bytes(order) < end) continue;
            if (end - start > most) start = end - most;
            tf_shm_discard(fd, start, end - start);
            a->touched = start;
            return end - start;
        }
    }
    return 0;
}
