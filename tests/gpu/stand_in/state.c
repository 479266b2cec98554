/* What all processes share, and the faults that tests order.  See state.h. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct state *shared;
static int lock_fd = -1;
static char folder[2048];
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int initialized_by;

const char *state_folder(void) { return folder; }

static void fill(struct state *state)
{
    state->devices = 2;
    state->device_bytes = (uint64_t)1 << 30;
    state->delay_us = 200;
    state->ipc = 1;
    state->capability = 90;
    atomic_store(&state->ready, 1);
}

static void open_state(void)
{
    const char *named = getenv("TISFAST_STAND_IN");
    char path[sizeof folder + 16];
    int fd;
    void *base;
    if (!named || strlen(named) >= sizeof folder)
        return;
    strcpy(folder, named);
    snprintf(path, sizeof path, "%s/lock", folder);
    lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    snprintf(path, sizeof path, "%s/state", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_fd < 0 || fd < 0 || flock(lock_fd, LOCK_EX) || ftruncate(fd, sizeof *shared))
        return;
    base = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base != MAP_FAILED && !atomic_load(&((struct state *)base)->ready))
        fill(base);
    flock(lock_fd, LOCK_UN);
    if (base != MAP_FAILED)
        shared = base;
}

struct state *state_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_state);
    return shared;
}

void state_lock(void)
{
    pthread_mutex_lock(&threads);
    while (flock(lock_fd, LOCK_EX) && errno == EINTR)
        ;
}

void state_unlock(void)
{
    flock(lock_fd, LOCK_UN);
    pthread_mutex_unlock(&threads);
}

void state_count(enum counter which, uint64_t more) { atomic_fetch_add(&shared->counters[which], more); }

void state_initialized(void) { atomic_store(&initialized_by, (int)getpid()); }

int state_fault(const char *name)
{
    int32_t own = (int32_t)getpid();
    for (int i = 0; i < FAULTS_MAX; i++) {
        struct fault *each = &shared->faults[i];
        int32_t pid = atomic_load(&each->pid);
        if (!atomic_load(&each->code) || strcmp(each->name, name) || (pid > 0 && pid != own) || (pid < 0 && -pid == own))
            continue;
        if (atomic_load(&each->after) > 0)
            atomic_fetch_sub(&each->after, 1);
        else if (atomic_load(&each->times) > 0) {
            atomic_fetch_sub(&each->times, 1);
            state_count(FAULTS_MET, 1);
            while (atomic_load(&each->code) == HANGS)
                nanosleep(&(struct timespec){0, 100000}, NULL);
            return atomic_load(&each->code);
        }
    }
    return OK;
}

int state_begin(const char *name)
{
    int failed;
    if (!state_get())
        return NO_DEVICE;
    failed = state_fault(name);
    if (failed)
        return failed;
    return strcmp(name, "cuInit") && atomic_load(&initialized_by) != (int)getpid() ? NOT_INITIALIZED : OK;
}

/* ---- for tests, by ctypes */

int stand_in_fail(const char *name, int after, int times, int code, int pid)
{
    struct fault *row = NULL;
    if (!state_get() || strlen(name) >= NAME_MAX_BYTES)
        return INVALID_VALUE;
    for (int i = 0; i < FAULTS_MAX; i++) {
        struct fault *each = &shared->faults[i];
        if (!strcmp(each->name, name)) {
            row = each;
            break;
        }
        if (!row && !atomic_load(&each->code)) /* a fault that is over */
            row = each;
    }
    if (!row)
        return OUT_OF_MEMORY;
    strcpy(row->name, name);
    atomic_store(&row->after, after);
    atomic_store(&row->times, times);
    atomic_store(&row->pid, pid);
    atomic_store(&row->code, code);
    return OK;
}

void stand_in_reset(void)
{
    if (!state_get())
        return;
    for (int i = 0; i < FAULTS_MAX; i++)
        atomic_store(&shared->faults[i].code, 0);
}

int stand_in_counters(uint64_t *into)
{
    if (!state_get())
        return NO_DEVICE;
    for (int i = 0; i < COUNTERS; i++)
        into[i] = atomic_load(&shared->counters[i]);
    return OK;
}

int stand_in_hold(uint32_t held, int32_t device)
{
    if (!state_get())
        return NO_DEVICE;
    atomic_store(&shared->held_device, device);
    atomic_store(&shared->held, held);
    return OK;
}

/* devices, bytes of each, how long a queued operation waits, and whether the devices are of different speed */
int stand_in_set(uint32_t devices, uint64_t device_bytes, uint32_t delay_us, uint32_t unlike)
{
    if (!state_get() || devices > DEVICES_MAX)
        return INVALID_VALUE;
    state_lock();
    shared->devices = devices;
    shared->device_bytes = device_bytes;
    shared->delay_us = delay_us;
    shared->unlike = unlike;
    state_unlock();
    return OK;
}

/* ipc: 1, 0, or -1 where the driver does not know the question; integrated, parts: 0 or 1; capability: times 10 */
int stand_in_describe(int ipc, int integrated, int parts, uint32_t capability)
{
    if (!state_get())
        return NO_DEVICE;
    atomic_store(&shared->ipc, ipc);
    atomic_store(&shared->integrated, integrated);
    atomic_store(&shared->parts, parts);
    atomic_store(&shared->capability, capability);
    return OK;
}
