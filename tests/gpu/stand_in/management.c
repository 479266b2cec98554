/* NVIDIA's management library (libnvidia-ml.so.1), as far as tisfast asks it: the same GPUs.  See state.h. */
#include "state.h"

#include <stdio.h>

#define UUID_FORMAT "GPU-57a4d140-0000-0000-0000-0000000000%02x" /* as cuDeviceGetUuid_v2 in driver.c */

enum { FINE = 0, NO_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

/* A device is its number plus one. */
struct memory { unsigned long long total, free, used; };
struct utilization { unsigned gpu, memory; };

int nvmlInit_v2(void) { return state_get() ? FINE : NOT_FOUND; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = state_get()->devices;
    return FINE;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, uintptr_t *device)
{
    if (index >= state_get()->devices)
        return NO_ARGUMENT;
    *device = index + 1;
    return FINE;
}

int nvmlDeviceGetUUID(uintptr_t device, char *uuid, unsigned nbytes)
{
    snprintf(uuid, nbytes, UUID_FORMAT, (unsigned)device - 1);
    return FINE;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, uintptr_t *device)
{
    unsigned index;
    if (sscanf(uuid, UUID_FORMAT, &index) != 1)
        return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

int nvmlDeviceGetCudaComputeCapability(uintptr_t device, int *major, int *minor)
{
    (void)device;
    *major = 9;
    *minor = 0;
    return FINE;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(uintptr_t part, uintptr_t *whole)
{
    (void)part, (void)whole;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(uintptr_t device, struct memory *memory)
{
    struct state *state = state_get();
    state_lock();
    memory->total = state->device_bytes;
    memory->used = state->allocated[device - 1];
    memory->free = memory->total - memory->used;
    state_unlock();
    return FINE;
}

int nvmlDeviceGetUtilizationRates(uintptr_t device, struct utilization *rates)
{
    (void)device;
    *rates = (struct utilization){25, 10};
    return FINE;
}

int nvmlDeviceGetPowerUsage(uintptr_t device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 100000;
    return FINE;
}

int nvmlDeviceGetEnforcedPowerLimit(uintptr_t device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 700000;
    return FINE;
}

int nvmlDeviceGetTotalEnergyConsumption(uintptr_t device, unsigned long long *millijoules)
{
    (void)device;
    *millijoules = 5000;
    return FINE;
}
