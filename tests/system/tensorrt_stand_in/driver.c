/* The NVIDIA driver's libraries without a GPU: device memory is host memory, and what a stream is given is done when
 * somebody waits for the stream, not before.  What the real driver would refuse, or would not bear, is an error here. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, BAD_HANDLE = 400, LAUNCH_FAILED = 719 };
enum { OPS_MAX = 4096, ALLOCATIONS_MAX = 1024, DEVICE_BYTES = 1 << 28 };
typedef int (*kernel_t)(long);
typedef struct { int kind; void *to; const void *from; size_t n; kernel_t kernel; long token; } op_t;
typedef struct { int count; op_t ops[OPS_MAX]; } queue_t;
typedef struct { uint64_t address; size_t nbytes; } allocation_t;

static int context, retained, lost;
static _Thread_local int current;
static queue_t stream, *capture;
static int streams;
static allocation_t allocations[ALLOCATIONS_MAX];
static size_t used;

/* ---- What the stand-in for TensorRT asks. */
int stand_in_covers(uint64_t address, size_t n) {
    for (int i = 0; i < ALLOCATIONS_MAX; i++) {
        allocation_t *a = &allocations[i];
        if (a->address && address >= a->address && address + n <= a->address + a->nbytes) return 1;
    }
    return 0;
}
static int queue(op_t op) {
    queue_t *to = capture ? capture : &stream;
    if (to->count == OPS_MAX) return INVALID;
    to->ops[to->count++] = op;
    return OK;
}
int stand_in_launch(void *s, kernel_t kernel, long token) {
    if (s != &stream || !streams) return BAD_HANDLE;
    return queue((op_t){.kind = 2, .kernel = kernel, .token = token});
}
int stand_in_captures(void) { return capture != NULL; }

/* ---- The driver. */
int cuInit(unsigned flags) { return flags ? INVALID : OK; }
int cuDeviceGetCount(int *n) { *n = 1; return OK; }
int cuDeviceGet(int *d, int n) { *d = 7; return n ? 101 : OK; }
int cuDevicePrimaryCtxRetain(void **c, int d) { retained++; *c = &context; return d == 7 ? OK : 101; }
int cuDevicePrimaryCtxRelease_v2(int d) { return d == 7 && retained-- > 0 ? OK : NO_CONTEXT; }
int cuCtxSetCurrent(void *c) { current = c == &context; return current ? OK : NO_CONTEXT; }
int cuStreamCreate(void **s, unsigned flags) {
    if (!current) return NO_CONTEXT;
    streams++; *s = &stream; return flags == 1 ? OK : INVALID;
}
int cuStreamDestroy_v2(void *s) { return s == &stream && streams-- > 0 ? OK : BAD_HANDLE; }
int cuStreamSynchronize(void *s) {
    if (s != &stream || !streams) return BAD_HANDLE;
    if (capture) return 900;
    int failed = lost;
    for (int i = 0; i < stream.count; i++) {
        op_t *op = &stream.ops[i];
        if (op->kind == 2) failed |= op->kernel(op->token);
        else memcpy(op->to, op->from, op->n);
    }
    stream.count = 0;
    lost |= failed;
    return failed ? LAUNCH_FAILED : OK;
}
int cuMemAlloc_v2(uint64_t *p, size_t n) {
    if (!current) return NO_CONTEXT;
    if (!n) return INVALID;
    if (used + n > DEVICE_BYTES) return OUT_OF_MEMORY;
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (!allocations[i].address) {
            void *memory = malloc(n);
            memset(memory, 0xAB, n);
            allocations[i] = (allocation_t){(uint64_t)(uintptr_t)memory, n};
            used += n; *p = allocations[i].address;
            return OK;
        }
    return OUT_OF_MEMORY;
}
int cuMemFree_v2(uint64_t p) {
    if (stream.count) return LAUNCH_FAILED; /* it might still be in use */
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (p && allocations[i].address == p) {
            used -= allocations[i].nbytes;
            free((void *)(uintptr_t)p);
            allocations[i].address = 0;
            return OK;
        }
    return INVALID;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *s) {
    if (lost) return LAUNCH_FAILED;
    if (s != &stream || !streams) return BAD_HANDLE;
    if (!stand_in_covers(to, n)) return INVALID;
    return queue((op_t){.to = (void *)(uintptr_t)to, .from = from, .n = n});
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) {
    if (s != &stream || !streams) return BAD_HANDLE;
    if (!stand_in_covers(from, n)) return INVALID;
    return queue((op_t){.to = to, .from = (void *)(uintptr_t)from, .n = n});
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *s) {
    if (lost) return LAUNCH_FAILED;
    if (s != &stream || !streams) return BAD_HANDLE;
    if (!stand_in_covers(to, n) || !stand_in_covers(from, n)) return INVALID;
    return queue((op_t){.to = (void *)(uintptr_t)to, .from = (void *)(uintptr_t)from, .n = n});
}
int cuStreamBeginCapture_v2(void *s, int mode) {
    if (s != &stream || capture || mode != 1) return INVALID;
    capture = calloc(1, sizeof *capture);
    return OK;
}
int cuStreamEndCapture(void *s, void **graph) {
    if (s != &stream || !capture) return INVALID;
    *graph = capture; capture = NULL;
    return OK;
}
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
    queue_t *copy = malloc(sizeof *copy);
    memcpy(copy, graph, sizeof *copy);
    *made = copy;
    return flags ? INVALID : OK;
}
int cuGraphLaunch(void *graph, void *s) {
    if (s != &stream) return BAD_HANDLE;
    for (int i = 0; i < ((queue_t *)graph)->count; i++) queue(((queue_t *)graph)->ops[i]);
    return OK;
}
int cuGraphExecDestroy(void *graph) { free(graph); return OK; }
int cuGraphDestroy(void *graph) { free(graph); return OK; }
int cuGetErrorName(int code, const char **text) {
    *text = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "";
    return OK;
}

/* ---- NVML: one GPU of 80 GB. */
typedef struct { unsigned long long total, free, used; } memory_t;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &context; return index > 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { (void)uuid; (void)device; return 1; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) { (void)d; *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *part, void **whole) { (void)part; (void)whole; return 1; }
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    (void)device; *memory = (memory_t){80ull << 30, 80ull << 30, 0}; return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) { (void)device; snprintf(uuid, size, "GPU-0"); return 0; }
int nvmlDeviceGetUtilizationRates(void *device, void *out) { (void)device; (void)out; return 3; }
int nvmlDeviceGetPowerUsage(void *device, void *out) { (void)device; (void)out; return 3; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, void *out) { (void)device; (void)out; return 3; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, void *out) { (void)device; (void)out; return 3; }
