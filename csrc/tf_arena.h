/* A block allocator over one arena.  The book-keeping is private memory of the owner process; the arena itself holds
 * only tensor bytes.  Buddy system on power-of-two blocks with a last-in first-out list per size in front of it: the
 * block freed last is handed out first, still warm in cache and page table.  A block's tail that nobody writes is never
 * touched and costs address space, not memory.
 *
 * A block is named by a handle: offset / TF_BLOCK_MIN in the low 40 bits, generation in the high 24.  Handle 0 is never
 * given out.  A stale handle is refused with -ESTALE.
 *
 * Owner thread only, except where noted.  Never blocks, logs or touches Python. */
#ifndef TF_ARENA_H
#define TF_ARENA_H

#include "tf_shm.h"

#define TF_BLOCK_MIN 512u
#define TF_ORDERS 40 /* TF_BLOCK_MIN << 39 is far beyond any arena */

struct tf_arena;

/* cap_bytes: size of the arena, rounded down to a multiple of TF_BLOCK_MIN; use_bytes_max: most bytes given out at one
 * time (block sizes counted as asked, rounded up to a page).  NULL when out of memory or cap is 0. */
TF_EXPORT struct tf_arena *tf_arena_new(uint64_t cap_bytes, uint64_t use_bytes_max);
TF_EXPORT void tf_arena_delete(struct tf_arena *a);
/* Handle of a block of at least nbytes, or 0: no room (nbytes 0 counts as 1). */
TF_EXPORT uint64_t tf_arena_take(struct tf_arena *a, uint64_t nbytes);
/* What a block of nbytes adds to tf_arena_used_bytes. */
TF_EXPORT uint64_t tf_arena_cost_bytes(uint64_t nbytes);
/* 0, or -ESTALE / -EINVAL for a handle that is not out. */
TF_EXPORT int tf_arena_give(struct tf_arena *a, uint64_t block);
/* Usable bytes of a block that is out, or 0. */
TF_EXPORT uint64_t tf_arena_block_bytes(const struct tf_arena *a, uint64_t block);
static inline uint64_t tf_block_offset(uint64_t block) { return (block & ((1ull << 40) - 1)) * TF_BLOCK_MIN; }
TF_EXPORT uint64_t tf_arena_used_bytes(const struct tf_arena *a);
TF_EXPORT uint64_t tf_arena_used_blocks(const struct tf_arena *a);
/* Highest byte ever handed out: what may be resident. */
TF_EXPORT uint64_t tf_arena_touched_bytes(const struct tf_arena *a);
/* Join all free neighbours and give their pages of at least `keep` bytes and up back to the system through fd.
 * Returns bytes discarded.  Call when idle. */
TF_EXPORT uint64_t tf_arena_trim(struct tf_arena *a, int fd);
/* The same for at most `most` bytes, from the highest touched byte downwards.  0: that byte lies in a block that is out, or
 * nothing is touched; what is left is free pages below it, which tf_arena_trim finds. */
TF_EXPORT uint64_t tf_arena_trim_top(struct tf_arena *a, int fd, uint64_t most);

#endif
