/* NVIDIA's management library (libnvidia-ml.so.1), as far as tisfast asks it: the same GPUs.  See state.h. */
#include "state.h"

#include <stdio.h>
#include <string.h>

enum { FINE = 0, UNINITIALIZED = 1, NO_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
enum { PART = 1 << 8 }; /* of a device: a part of MIG */

/* A device is its number plus one, and PART where it is a part of that GPU. */
struct memory { unsigned long long total, free, used; };
struct utilization { unsigned gpu, memory; };

static _Atomic int begun; /* in this process, and not ended */

#define MANAGED() do { \
    int refused = atomic_load(&begun) < 1 ? UNINITIALIZED : state_fault(__func__); \
    if (refused) \
        return refused; \
} while (0)
#define NUMBER(device) ((unsigned)((device) & (PART - 1)) - 1)

int nvmlInit_v2(void)
{
    int refused = state_get() ? state_fault(__func__) : NOT_FOUND;
    if (refused)
        return refused;
    atomic_fetch_add(&begun, 1);
    state_count(MANAGERS_BEGUN, 1);
    return FINE;
}

int nvmlShutdown(void)
{
    MANAGED();
    atomic_fetch_sub(&begun, 1);
    state_count(MANAGERS_ENDED, 1);
    return FINE;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    MANAGED();
    *count = state_get()->devices;
    return FINE;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, uintptr_t *device)
{
    MANAGED();
    if (index >= state_get()->devices)
        return NO_ARGUMENT;
    *device = index + 1;
    return FINE;
}

int nvmlDeviceGetUUID(uintptr_t device, char *uuid, unsigned nbytes)
{
    char text[37];
    MANAGED();
    device_uuid_text((int)NUMBER(device), device & PART ? 1 : 0, text);
    snprintf(uuid, nbytes, "%s-%s", device & PART ? "MIG" : "GPU", text);
    return FINE;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, uintptr_t *device)
{
    MANAGED();
    for (uintptr_t number = 0; number < state_get()->devices; number++)
        for (uintptr_t part = 0; part <= (atomic_load(&state_get()->parts) ? (uintptr_t)PART : 0); part += PART) {
            char text[96];
            nvmlDeviceGetUUID((number + 1) | part, text, sizeof text);
            if (!strcmp(text, uuid)) {
                *device = (number + 1) | part;
                return FINE;
            }
        }
    return NOT_FOUND;
}

int nvmlDeviceGetCudaComputeCapability(uintptr_t device, int *major, int *minor)
{
    unsigned capability = NUMBER(device) == state_get()->devices - 1 ? atomic_load(&state_get()->capability) : 90;
    MANAGED();
    if (device & PART)
        return NOT_SUPPORTED;
    *major = (int)capability / 10;
    *minor = (int)capability % 10;
    return FINE;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(uintptr_t part, uintptr_t *whole)
{
    MANAGED();
    *whole = part & (PART - 1);
    return part & PART ? FINE : NO_ARGUMENT;
}

int nvmlDeviceGetMemoryInfo(uintptr_t device, struct memory *memory)
{
    struct state *state = state_get();
    MANAGED();
    state_lock();
    memory->total = state->device_bytes;
    memory->used = memory_in_use(state, (uint32_t)NUMBER(device));
    memory->free = memory->total - memory->used;
    state_unlock();
    return FINE;
}

int nvmlDeviceGetUtilizationRates(uintptr_t device, struct utilization *rates)
{
    (void)device;
    MANAGED();
    *rates = (struct utilization){25, 10};
    return FINE;
}

int nvmlDeviceGetPowerUsage(uintptr_t device, unsigned *milliwatts)
{
    (void)device;
    MANAGED();
    *milliwatts = 100000;
    return FINE;
}

int nvmlDeviceGetEnforcedPowerLimit(uintptr_t device, unsigned *milliwatts)
{
    (void)device;
    MANAGED();
    *milliwatts = 700000;
    return FINE;
}

int nvmlDeviceGetTotalEnergyConsumption(uintptr_t device, unsigned long long *millijoules)
{
    (void)device;
    MANAGED();
    *millijoules = 5000;
    return FINE;
}
