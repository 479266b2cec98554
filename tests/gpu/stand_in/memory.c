/* Device memory, host memory that is pinned, and handles of memory for other processes.  See state.h. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Device memory that this process can name: its own, or opened by a handle (refs: how often).  on: the device in whose
 * context; another process' memory may be another one's. */
struct mapping {
    device_pointer base;
    uint64_t nbytes, generation;
    uint32_t row;
    int fd, refs, opened, on;
};

struct range { const char *base; size_t nbytes; int allocated; };

/* What a handle holds. */
struct named { char magic[8]; uint64_t generation; uint32_t row, device; };

static const char MAGIC[8] = "standin";
enum { RANGES_MAX = 256 };
static struct mapping mappings[ALLOCATIONS_MAX];
static struct range pinned[RANGES_MAX];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

static int open_file(uint32_t row, uint64_t generation, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/memory-%u-%llu", state_folder(), row, (unsigned long long)generation);
    return open(path, O_RDWR | O_CLOEXEC | flags, 0600);
}

static void remove_file(uint32_t row, uint64_t generation)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/memory-%u-%llu", state_folder(), row, (unsigned long long)generation);
    unlink(path);
}

/* The memory of processes that have died goes with them.  Locked. */
static void bury(struct state *state)
{
    for (uint32_t row = 0; row < ALLOCATIONS_MAX; row++) {
        struct allocation *each = &state->allocations[row];
        if (!each->used || !atomic_load(&each->live) || !kill(each->owner, 0) || errno != ESRCH)
            continue;
        atomic_store(&each->live, 0);
        state->allocated[each->device] -= each->nbytes;
        remove_file(row, each->generation);
    }
}

uint64_t memory_in_use(struct state *state, uint32_t device)
{
    bury(state);
    return state->allocated[device];
}

/* Of processes that live. */
uint64_t stand_in_allocated(uint32_t device)
{
    struct state *state = state_get();
    uint64_t nbytes;
    if (!state || device >= DEVICES_MAX)
        return 0;
    state_lock();
    nbytes = memory_in_use(state, device);
    state_unlock();
    return nbytes;
}

/* The mapping that holds an address; table is locked. */
static struct mapping *find(device_pointer at)
{
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (mappings[i].refs && at - mappings[i].base < mappings[i].nbytes)
            return &mappings[i];
    return NULL;
}

static struct mapping *spare(void)
{
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (!mappings[i].refs)
            return &mappings[i];
    return NULL;
}

/* Addresses that fault when the processor uses them.  table is locked. */
static int map(struct mapping *into, int fd, uint32_t row, uint64_t generation, uint64_t nbytes, int opened)
{
    void *base = mmap(NULL, nbytes, PROT_NONE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return OUT_OF_MEMORY;
    *into = (struct mapping){(device_pointer)(uintptr_t)base, nbytes, generation, row, fd, 1, opened,
                             context_device()};
    return OK;
}

/* This process has opened it, or has it open no more.  Of more than OPENERS_MAX some are not known.  Locked, both. */
static void note_opener(struct allocation *row, int32_t before, int32_t after)
{
    for (int i = 0; i < OPENERS_MAX; i++)
        if (row->openers[i] == before || (!before && kill(row->openers[i], 0) && errno == ESRCH)) {
            row->openers[i] = after;
            return;
        }
}

/* Of what is freed: CUDA does not say what becomes of it while others have it open.  Locked, both. */
static void count_openers(const struct allocation *row)
{
    for (int i = 0; i < OPENERS_MAX; i++)
        if (row->openers[i] && (!kill(row->openers[i], 0) || errno != ESRCH))
            state_count(FREED_WHILE_OPEN, 1);
}

static void unmap(struct mapping *mapping)
{
    munmap((void *)(uintptr_t)mapping->base, mapping->nbytes);
    close(mapping->fd);
    mapping->refs = 0;
}

/* Locked, both. */
static int allocate(struct state *state, device_pointer *at, size_t nbytes)
{
    uint32_t device = (uint32_t)context_device();
    struct mapping *into = spare();
    uint32_t row = 0;
    int fd, failed;
    bury(state);
    while (row < ALLOCATIONS_MAX && state->allocations[row].used && atomic_load(&state->allocations[row].live))
        row++;
    if (!into || row == ALLOCATIONS_MAX || nbytes > state->device_bytes - state->allocated[device])
        return OUT_OF_MEMORY;
    fd = open_file(row, ++state->generations, O_CREAT | O_EXCL);
    failed = fd < 0 || ftruncate(fd, (off_t)nbytes) ? OUT_OF_MEMORY
                                                     : map(into, fd, row, state->generations, nbytes, 0);
    if (failed) {
        if (fd >= 0)
            close(fd);
        remove_file(row, state->generations);
        return failed;
    }
    state->allocations[row] = (struct allocation){1, (int32_t)getpid(), device, 1, nbytes, state->generations, {0}};
    state->allocated[device] += nbytes;
    state_count(ALLOCATED, 1);
    *at = into->base;
    return OK;
}

int cuMemAlloc_v2(device_pointer *at, size_t nbytes)
{
    int failed;
    BEGIN();
    CONTEXT();
    if (!nbytes)
        return INVALID_VALUE;
    pthread_mutex_lock(&table);
    state_lock();
    failed = allocate(state_get(), at, nbytes);
    state_unlock();
    pthread_mutex_unlock(&table);
    return failed;
}

int cuMemFree_v2(device_pointer at)
{
    struct state *state;
    struct mapping *mapping;
    int failed = INVALID_VALUE;
    BEGIN();
    state = state_get();
    pthread_mutex_lock(&table);
    mapping = find(at);
    if (mapping && !mapping->opened && mapping->base == at) {
        state_lock();
        count_openers(&state->allocations[mapping->row]);
        atomic_store(&state->allocations[mapping->row].live, 0);
        state->allocated[state->allocations[mapping->row].device] -= mapping->nbytes;
        remove_file(mapping->row, mapping->generation);
        state_unlock();
        unmap(mapping);
        state_count(FREED, 1);
        failed = OK;
    }
    pthread_mutex_unlock(&table);
    return failed;
}

void memory_reset(int device)
{
    struct state *state = state_get();
    pthread_mutex_lock(&table);
    state_lock();
    for (int i = 0; i < ALLOCATIONS_MAX; i++) {
        struct allocation *row = &state->allocations[mappings[i].row];
        if (!mappings[i].refs || mappings[i].on != device)
            continue;
        if (mappings[i].opened && row->generation == mappings[i].generation)
            note_opener(row, (int32_t)getpid(), 0);
        if (!mappings[i].opened && atomic_load(&row->live)) {
            count_openers(row);
            atomic_store(&row->live, 0);
            state->allocated[device] -= mappings[i].nbytes;
            remove_file(mappings[i].row, mappings[i].generation);
        }
        unmap(&mappings[i]);
    }
    state_unlock();
    pthread_mutex_unlock(&table);
}

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    struct state *state;
    BEGIN();
    CONTEXT();
    state = state_get();
    state_lock();
    bury(state);
    *total = state->device_bytes;
    *left = state->device_bytes - state->allocated[context_device()];
    state_unlock();
    return OK;
}

int cuMemGetAddressRange_v2(device_pointer *base, size_t *nbytes, device_pointer at)
{
    struct mapping *mapping;
    BEGIN();
    pthread_mutex_lock(&table);
    mapping = find(at);
    if (mapping) {
        *base = mapping->base;
        *nbytes = mapping->nbytes;
    }
    pthread_mutex_unlock(&table);
    return mapping ? OK : INVALID_VALUE;
}

int cuPointerGetAttribute(void *value, int attribute, device_pointer at)
{
    enum { MEMORY_TYPE = 2, BUFFER_ID = 7, ORDINAL = 9, RANGE_START = 11, RANGE_BYTES = 12 };
    struct mapping *mapping;
    BEGIN();
    pthread_mutex_lock(&table);
    mapping = find(at);
    if (mapping && attribute == MEMORY_TYPE)
        *(unsigned *)value = 2;
    else if (mapping && attribute == BUFFER_ID)
        *(uint64_t *)value = mapping->generation;
    else if (mapping && attribute == ORDINAL)
        *(int *)value = (int)state_get()->allocations[mapping->row].device;
    else if (mapping && attribute == RANGE_START)
        *(device_pointer *)value = mapping->base;
    else if (mapping && attribute == RANGE_BYTES)
        *(size_t *)value = mapping->nbytes;
    else
        mapping = NULL;
    pthread_mutex_unlock(&table);
    return mapping ? OK : INVALID_VALUE;
}

/* ---- copies */

static int copy(device_pointer at, char *host, size_t nbytes, int out)
{
    struct mapping *mapping;
    uint64_t offset = 0, generation = 0;
    uint32_t row = 0;
    int fd = -1;
    pthread_mutex_lock(&table);
    mapping = find(at);
    if (mapping && nbytes <= mapping->nbytes - (at - mapping->base)) {
        offset = at - mapping->base;
        row = mapping->row;
        generation = mapping->generation;
        fd = dup(mapping->fd);
    }
    pthread_mutex_unlock(&table);
    if (fd < 0)
        return INVALID_VALUE;
    if (!atomic_load(&state_get()->allocations[row].live) || state_get()->allocations[row].generation != generation) {
        close(fd);
        state_count(USED_AFTER_FREE, 1);
        return ILLEGAL_ADDRESS;
    }
    for (size_t done = 0; done < nbytes;) {
        ssize_t n = out ? pread(fd, host + done, nbytes - done, (off_t)(offset + done))
                        : pwrite(fd, host + done, nbytes - done, (off_t)(offset + done));
        if (n <= 0) {
            close(fd);
            return ILLEGAL_ADDRESS;
        }
        done += (size_t)n;
    }
    close(fd);
    return OK;
}

int memory_read(device_pointer from, void *host, size_t nbytes) { return copy(from, host, nbytes, 1); }
int memory_write(device_pointer to, const void *host, size_t nbytes) { return copy(to, (char *)(uintptr_t)host, nbytes, 0); }

/* ---- handles */

int cuIpcGetMemHandle(ipc_handle *handle, device_pointer at)
{
    struct named named = {{0}, 0, 0, 0};
    struct mapping *mapping;
    BEGIN();
    pthread_mutex_lock(&table);
    mapping = find(at);
    if (mapping && !mapping->opened) {
        memcpy(named.magic, MAGIC, sizeof MAGIC);
        named.generation = mapping->generation;
        named.row = mapping->row;
        named.device = state_get()->allocations[mapping->row].device;
    }
    pthread_mutex_unlock(&table);
    if (!named.generation)
        return INVALID_VALUE;
    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes, &named, sizeof named);
    return OK;
}

/* table is locked */
static int open_named(device_pointer *at, const struct named *named)
{
    struct state *state = state_get();
    struct allocation *row = &state->allocations[named->row];
    struct mapping *into = spare();
    int fd, failed;
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (mappings[i].refs && mappings[i].opened && mappings[i].generation == named->generation &&
            mappings[i].on == context_device()) {
            mappings[i].refs++; /* as the driver: one address for one handle in a context */
            *at = mappings[i].base;
            return OK;
        }
    if (row->generation != named->generation || !atomic_load(&row->live))
        return INVALID_HANDLE;
    if (row->owner == (int32_t)getpid())
        return INVALID_CONTEXT; /* a process cannot open its own */
    fd = into ? open_file(named->row, named->generation, 0) : -1;
    if (fd < 0)
        return into ? INVALID_HANDLE : OUT_OF_MEMORY;
    failed = map(into, fd, named->row, named->generation, row->nbytes, 1);
    if (failed)
        close(fd);
    else {
        note_opener(row, 0, (int32_t)getpid());
        *at = into->base;
    }
    return failed;
}

int cuIpcOpenMemHandle_v2(device_pointer *at, ipc_handle handle, unsigned flags)
{
    struct named named;
    int failed;
    BEGIN();
    CONTEXT();
    memcpy(&named, handle.bytes, sizeof named);
    if (memcmp(named.magic, MAGIC, sizeof MAGIC) || named.row >= ALLOCATIONS_MAX)
        return INVALID_VALUE;
    if ((int)named.device != context_device() && flags != 1) /* cudaIpcMemLazyEnablePeerAccess */
        return INVALID_DEVICE;
    pthread_mutex_lock(&table);
    state_lock();
    bury(state_get());
    failed = open_named(at, &named);
    state_unlock();
    pthread_mutex_unlock(&table);
    if (!failed)
        state_count(OPENED, 1);
    return failed;
}

int cuIpcCloseMemHandle(device_pointer at)
{
    struct mapping *mapping;
    BEGIN();
    pthread_mutex_lock(&table);
    mapping = find(at);
    if (mapping && (!mapping->opened || mapping->base != at))
        mapping = NULL;
    if (mapping && mapping->refs == 1) {
        struct allocation *row = &state_get()->allocations[mapping->row];
        state_lock();
        if (row->generation == mapping->generation)
            note_opener(row, (int32_t)getpid(), 0);
        state_unlock();
        unmap(mapping);
    }
    else if (mapping)
        mapping->refs--;
    pthread_mutex_unlock(&table);
    if (!mapping)
        return INVALID_VALUE;
    state_count(CLOSED, 1);
    return OK;
}

/* ---- pinned host memory */

int memory_is_pinned(const void *host, size_t nbytes)
{
    const char *begin = host, *end = begin + nbytes;
    int found = 0;
    pthread_mutex_lock(&table);
    for (int i = 0; i < RANGES_MAX && !found; i++)
        if (pinned[i].base && begin < pinned[i].base + pinned[i].nbytes && pinned[i].base < end)
            found = begin >= pinned[i].base && end <= pinned[i].base + pinned[i].nbytes ? 1 : -1;
    pthread_mutex_unlock(&table);
    return found;
}

static int pin(const void *host, size_t nbytes, int allocated)
{
    int row = -1, failed = OK;
    pthread_mutex_lock(&table);
    for (int i = 0; i < RANGES_MAX; i++) {
        if (!pinned[i].base)
            row = i;
        else if ((const char *)host < pinned[i].base + pinned[i].nbytes && pinned[i].base < (const char *)host + nbytes)
            failed = ALREADY_REGISTERED;
    }
    if (!failed && row < 0)
        failed = OUT_OF_MEMORY;
    if (!failed)
        pinned[row] = (struct range){host, nbytes, allocated};
    pthread_mutex_unlock(&table);
    if (!failed)
        state_count(HOST_REGISTERED, 1);
    return failed;
}

static int unpin(const void *host, int allocated)
{
    int failed = allocated ? INVALID_VALUE : NOT_REGISTERED;
    pthread_mutex_lock(&table);
    for (int i = 0; i < RANGES_MAX; i++)
        if (pinned[i].base == (const char *)host && pinned[i].allocated == allocated) {
            pinned[i].base = NULL;
            failed = OK;
        }
    pthread_mutex_unlock(&table);
    if (!failed)
        state_count(HOST_UNREGISTERED, 1);
    return failed;
}

int cuMemHostRegister_v2(void *host, size_t nbytes, unsigned flags)
{
    BEGIN();
    CONTEXT();
    (void)flags;
    return host && nbytes ? pin(host, nbytes, 0) : INVALID_VALUE;
}

int cuMemHostUnregister(void *host)
{
    BEGIN();
    return unpin(host, 0);
}

int cuMemHostAlloc(void **host, size_t nbytes, unsigned flags)
{
    int failed;
    BEGIN();
    CONTEXT();
    (void)flags;
    *host = aligned_alloc(4096, (nbytes + 4095) & ~(size_t)4095);
    if (!*host)
        return OUT_OF_MEMORY;
    failed = pin(*host, nbytes, 1);
    if (failed)
        free(*host);
    return failed;
}

int cuMemFreeHost(void *host)
{
    int failed;
    BEGIN();
    failed = unpin(host, 1);
    if (!failed)
        free(host);
    return failed;
}
