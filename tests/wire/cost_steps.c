/* Instructions between two calls, as valgrind counts them: it sees these requests, and nothing else does. */
#include <valgrind/callgrind.h>

void steps_begin(void)
{
    CALLGRIND_START_INSTRUMENTATION; /* once: imports before it are none of ours */
    CALLGRIND_ZERO_STATS;
}

void steps_end(void)
{
    CALLGRIND_DUMP_STATS;
}
