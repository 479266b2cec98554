/* The worker's side of its output arena; see tf_output.h. */
#include "tf_output.h"

uint64_t tf_output_take(struct tf_arena *a, uint64_t nbytes)
{
    return tf_arena_used_blocks(a) < TF_OUTPUT_BLOCKS_MAX ? tf_arena_take(a, nbytes) : 0;
}

uint64_t tf_output_collect(struct tf_channel *c, struct tf_arena *a)
{
    uint64_t given = 0;
    const struct tf_give_slot *slot;
    while (given < TF_GIVE_SLOTS && (slot = tf_ring_peek(c, &c->give, 0)) != NULL) {
        tf_arena_give(a, slot->block);
        tf_ring_take(&c->give, 1);
        given++;
    }
    return given;
}
