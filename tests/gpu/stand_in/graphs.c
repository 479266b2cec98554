/* CUDA graphs: a capture begins and ends (streams.c), but no graph is made of it here.  See state.h. */
#include "state.h"

enum { NOT_SUPPORTED = 801 };

int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags)
{
    (void)made; (void)graph; (void)flags;
    return NOT_SUPPORTED;
}
int cuGraphLaunch(void *graph, void *stream) { (void)graph; (void)stream; return NOT_SUPPORTED; }
int cuGraphExecDestroy(void *graph) { (void)graph; return NOT_SUPPORTED; }
int cuGraphDestroy(void *graph) { return graph ? 0 : NOT_SUPPORTED; }
