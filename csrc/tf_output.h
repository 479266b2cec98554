/* The worker's side of its output arena, in single calls: with the GIL held throughout, threads cannot meet in one. */
#ifndef TF_OUTPUT_H
#define TF_OUTPUT_H

#include "tf_arena.h"
#include "tf_ring.h"

/* As tf_arena_take, and no more than TF_OUTPUT_BLOCKS_MAX blocks: what the give ring can bring back. */
TF_EXPORT uint64_t tf_output_take(struct tf_arena *a, uint64_t nbytes);
/* Take back all blocks that the server has given back; their number.  A handle that is not out is the server's mistake,
 * and loses nothing of ours. */
TF_EXPORT uint64_t tf_output_collect(struct tf_channel *c, struct tf_arena *a);

#endif
