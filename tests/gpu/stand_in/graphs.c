/* CUDA graphs: there are none here.  See state.h. */
#include "state.h"

enum { NOT_SUPPORTED = 801 };

int cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream; (void)mode; return NOT_SUPPORTED; }
int cuStreamEndCapture(void *stream, void **graph) { (void)stream; (void)graph; return NOT_SUPPORTED; }
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags)
{
    (void)made; (void)graph; (void)flags;
    return NOT_SUPPORTED;
}
int cuGraphLaunch(void *graph, void *stream) { (void)graph; (void)stream; return NOT_SUPPORTED; }
int cuGraphExecDestroy(void *graph) { (void)graph; return NOT_SUPPORTED; }
int cuGraphDestroy(void *graph) { (void)graph; return NOT_SUPPORTED; }
