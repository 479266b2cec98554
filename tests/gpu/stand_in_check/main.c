/* A program that uses the stand-in for the driver from several threads and processes, for the sanitizers. */
#include "../stand_in/state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(device_pointer *, size_t);
int cuMemFree_v2(device_pointer);
int cuIpcGetMemHandle(ipc_handle *, device_pointer);
int cuIpcOpenMemHandle_v2(device_pointer *, ipc_handle, unsigned);
int cuIpcCloseMemHandle(device_pointer);
int cuStreamCreate(void **, unsigned);
int cuStreamDestroy_v2(void *);
int cuStreamSynchronize(void *);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemHostUnregister(void *);
int cuMemcpyHtoDAsync_v2(device_pointer, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, device_pointer, size_t, void *);
int cuMemcpyDtoDAsync_v2(device_pointer, device_pointer, size_t, void *);
int cuEventCreate(uintptr_t *, unsigned);
int cuEventRecord(uintptr_t, void *);
int cuEventDestroy_v2(uintptr_t);
int cuStreamWaitEvent(void *, uintptr_t, unsigned);

enum { NBYTES = 1 << 16, TIMES = 20, THREADS = 4 };

#define MUST(call) do { int code = (call); if (code) { printf("%d: %s: %d\n", __LINE__, #call, code); exit(1); } } while (0)

static void *context;

static void *copies(void *unused)
{
    char *host = malloc(2 * NBYTES);
    void *one, *other;
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&one, 1));
    MUST(cuStreamCreate(&other, 1));
    MUST(cuMemHostRegister_v2(host, 2 * NBYTES, 0));
    for (int i = 0; i < TIMES; i++) {
        device_pointer from, to;
        uintptr_t event;
        MUST(cuMemAlloc_v2(&from, NBYTES));
        MUST(cuMemAlloc_v2(&to, NBYTES));
        MUST(cuEventCreate(&event, 2));
        memset(host, i + 1, NBYTES);
        MUST(cuMemcpyHtoDAsync_v2(from, host, NBYTES, one));
        MUST(cuEventRecord(event, one));
        MUST(cuStreamWaitEvent(other, event, 0));
        MUST(cuMemcpyDtoDAsync_v2(to, from, NBYTES, other));
        MUST(cuMemcpyDtoHAsync_v2(host + NBYTES, to, NBYTES, other));
        MUST(cuStreamSynchronize(other));
        MUST(memcmp(host, host + NBYTES, NBYTES));
        MUST(cuEventDestroy_v2(event));
        MUST(cuMemFree_v2(from));
        MUST(cuMemFree_v2(to));
    }
    MUST(cuMemHostUnregister(host));
    MUST(cuStreamDestroy_v2(one));
    MUST(cuStreamDestroy_v2(other));
    free(host);
    return NULL;
}

/* Another process opens what this one names. */
static void consumer(int from)
{
    ipc_handle handle;
    device_pointer at;
    char *found = malloc(NBYTES);
    void *stream;
    MUST(read(from, &handle, sizeof handle) != (ssize_t)sizeof handle);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuIpcOpenMemHandle_v2(&at, handle, 1));
    MUST(cuMemcpyDtoHAsync_v2(found, at, NBYTES, stream));
    MUST(cuStreamSynchronize(stream));
    for (int i = 0; i < NBYTES; i++)
        MUST(found[i] != 7);
    MUST(cuIpcCloseMemHandle(at));
    MUST(cuStreamDestroy_v2(stream));
    free(found);
    exit(0);
}

int main(void)
{
    pthread_t threads[THREADS];
    char *sevens = malloc(NBYTES);
    ipc_handle handle;
    device_pointer at;
    int ends[2], status;
    MUST(pipe(ends));
    if (fork() == 0)
        consumer(ends[0]);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, copies, NULL));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&at, NBYTES));
    memset(sevens, 7, NBYTES);
    MUST(cuMemcpyHtoDAsync_v2(at, sevens, NBYTES, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuIpcGetMemHandle(&handle, at));
    MUST(write(ends[1], &handle, sizeof handle) != (ssize_t)sizeof handle);
    wait(&status);
    MUST(status);
    MUST(cuMemFree_v2(at));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    free(sevens);
    puts("done");
    return 0;
}
