/* A stand-in for NVIDIA's driver (libcuda.so.1): device memory is memory files, and IPC handles name them across processes.
 *
 * What all processes share lies in one file, $TISFAST_STAND_IN/state.  A device's address cannot be read or written by
 * the processor, and what is queued in a stream is done later, by a thread of the stream: whoever forgets to wait sees
 * old bytes.  It counts what is copied, opened and used after it was freed.  Only the calls are there that tisfast makes. */
#ifndef STAND_IN_STATE_H
#define STAND_IN_STATE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t device_pointer;
typedef struct { unsigned char bytes[64]; } ipc_handle;

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, ALREADY_MAPPED = 208, INVALID_HANDLE = 400, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
    ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901
};

enum { HANGS = -1 }; /* a call with this fault waits for as long as the fault is there */
enum { DEVICES_MAX = 8, ALLOCATIONS_MAX = 4096, EVENTS_MAX = 4096, FAULTS_MAX = 16, NAME_MAX_BYTES = 48, OPENERS_MAX = 16 };

/* In the order of tests/gpu/stand_in_driver.py, COUNTERS. */
enum counter {
    HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, HOST_BYTES, PINNED_COPIES, ALLOCATED, FREED, OPENED, CLOSED,
    USED_AFTER_FREE, HOST_REGISTERED, HOST_UNREGISTERED, EVENTS_MADE, EVENTS_ENDED, STREAMS_MADE, STREAMS_ENDED,
    OPERATIONS_HELD, USED_UNPINNED, FREED_WHILE_OPEN, FAULTS_MET, MANAGERS_BEGUN, MANAGERS_ENDED,
    RESET_WHILE_USED, COUNTERS
};

struct allocation {
    _Atomic uint32_t live; /* 1: neither freed nor its process dead */
    int32_t owner;         /* pid */
    uint32_t device, used; /* used: this row was given out, and its file is there */
    uint64_t nbytes, generation;
    int32_t openers[OPENERS_MAX]; /* pids of those that have it open, 0: none */
};

struct event {
    _Atomic uint32_t used;
    _Atomic uint64_t recorded, done; /* how often it was recorded, and which of these the stream has reached */
};

struct fault {
    char name[NAME_MAX_BYTES];
    _Atomic int32_t after, times, code; /* calls that still succeed, then calls that fail; code HANGS: that wait */
    _Atomic int32_t pid;                /* in this process only; negative: in all but that one; 0: in all */
};

struct state {
    _Atomic uint32_t ready;
    _Atomic uint32_t devices, delay_us, held; /* held: what is queued and has so many bytes less one, or more, is not done yet */
    _Atomic int32_t held_device; /* of what is queued on this device; -1: on all */
    _Atomic uint32_t unlike; /* the last device is the fastest, so CUDA counts from there */
    _Atomic int32_t ipc, integrated, parts; /* ipc: -1 is a driver older than the question; parts: of MIG */
    _Atomic uint32_t capability;            /* of the last device, times 10; the others have 9.0 */
    uint64_t device_bytes, generations;
    uint64_t allocated[DEVICES_MAX];
    _Atomic uint64_t counters[COUNTERS];
    struct fault faults[FAULTS_MAX];
    struct allocation allocations[ALLOCATIONS_MAX];
    struct event events[EVENTS_MAX];
};

/* The shared state, made by whoever comes first; NULL when the folder cannot be used. */
struct state *state_get(void);
const char *state_folder(void);
/* Around what changes tables of the state; between processes and threads.  Goes with a process that dies. */
void state_lock(void);
void state_unlock(void);
void state_count(enum counter which, uint64_t more);
/* What a call of this name answers: a fault that a test has ordered, NOT_INITIALIZED before cuInit and in forked children, or OK. */
int state_begin(const char *name);
/* The fault alone: the code that a call of this name shall fail with here, or OK. */
int state_fault(const char *name);
void state_initialized(void);

/* A device's UUID, or that of the part of MIG that it is used as; its text as nvidia-smi writes it, without GPU- or MIG-. */
void device_uuid(int device, int part, unsigned char uuid[16]);
void device_uuid_text(int device, int part, char text[37]);

/* The current device of this thread, -1 without a context. */
int context_device(void);

/* Bytes between device memory and `host`.  OK, INVALID_VALUE outside of an allocation, ILLEGAL_ADDRESS when it was freed. */
int memory_read(device_pointer from, void *host, size_t nbytes);
int memory_write(device_pointer to, const void *host, size_t nbytes);
/* Whether the whole range was registered with one cuMemHostRegister, or made by cuMemHostAlloc; -1: a part of it was,
 * and the driver refuses to copy. */
int memory_is_pinned(const void *host, size_t nbytes);

/* Bytes of a device that living processes have.  Locked. */
uint64_t memory_in_use(struct state *state, uint32_t device);
/* The context of a device is gone, and with it what was opened or allocated there, and its streams. */
void memory_reset(int device);
void streams_reset(int device);

#define BEGIN() do { int refused = state_begin(__func__); if (refused) return refused; } while (0)
#define CONTEXT() do { if (context_device() < 0) return INVALID_CONTEXT; } while (0)

#endif
