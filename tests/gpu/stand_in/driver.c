/* Devices, contexts and the names of errors.  See state.h. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct context { int device; _Atomic int retained; };

static struct context contexts[DEVICES_MAX];
enum { STACK_MAX = 16 };
enum { IS_INTEGRATED = 18, SUPPORTS_IPC = 125 }; /* of CUdevice_attribute */
static _Thread_local struct context *stack[STACK_MAX];
static _Thread_local int depth;

int context_device(void) { return depth && stack[depth - 1] ? stack[depth - 1]->device : -1; }

void device_uuid(int device, int part, unsigned char uuid[16])
{
    static const unsigned char all[14] = {0x57, 0xa4, 0xd1, 0x40};
    memcpy(uuid, all, sizeof all);
    uuid[14] = part != 0;
    uuid[15] = (unsigned char)device;
}

void device_uuid_text(int device, int part, char text[37])
{
    unsigned char uuid[16];
    device_uuid(device, part, uuid);
    for (int i = 0; i < 16; i++)
        text += sprintf(text, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

/* The device that a part of CUDA_VISIBLE_DEVICES names, up to a comma; -1: none.  A GPU's UUID may be cut short. */
static int named(const char *name, size_t length)
{
    int all = (int)state_get()->devices, is_part = !strncmp(name, "MIG-", 4);
    char text[37], *end;
    long number = strtol(name, &end, 10);
    if (end == name + length && length)
        return number >= 0 && number < all ? (int)number : -1;
    if (length < 5 || (!is_part && strncmp(name, "GPU-", 4)) || (is_part && !atomic_load(&state_get()->parts)))
        return -1;
    for (int device = 0; device < all; device++) {
        device_uuid_text(device, is_part, text);
        if (length - 4 <= 36 && !strncmp(text, name + 4, length - 4) && (!is_part || length == 40))
            return device;
    }
    return -1;
}

/* The devices that this process sees, in its order (CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES): how many. */
static int visible(int *devices)
{
    const char *order = getenv("CUDA_DEVICE_ORDER"), *names = getenv("CUDA_VISIBLE_DEVICES");
    int all = (int)state_get()->devices, count = 0;
    int turned = atomic_load(&state_get()->unlike) && !(order && !strcmp(order, "PCI_BUS_ID"));
    while (count < all && (!names || *names)) {
        size_t length = names ? strcspn(names, ",") : 0;
        int number = names ? named(names, length) : count;
        if (number < 0)
            break;
        devices[count++] = turned && !(names && (*names == 'G' || *names == 'M')) ? all - 1 - number : number;
        names = names ? names + length + (names[length] == ',') : NULL;
    }
    return count;
}

int cuInit(unsigned flags)
{
    BEGIN();
    if (flags)
        return INVALID_VALUE;
    if (!state_get()->devices)
        return NO_DEVICE;
    state_initialized();
    return OK;
}

int cuDriverGetVersion(int *version)
{
    *version = 12040;
    return OK;
}

int cuDeviceGetCount(int *count)
{
    BEGIN();
    int devices[DEVICES_MAX];
    *count = visible(devices);
    return OK;
}

int cuDeviceGet(int *device, int number)
{
    BEGIN();
    int devices[DEVICES_MAX];
    if (number < 0 || number >= visible(devices))
        return INVALID_DEVICE;
    *device = devices[number];
    return OK;
}

/* Of the part of MIG where the device is one; the older call tells the GPU's in any case. */
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    BEGIN();
    device_uuid(device, atomic_load(&state_get()->parts), uuid);
    return OK;
}

int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    BEGIN();
    device_uuid(device, 0, uuid);
    return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int ipc;
    BEGIN();
    (void)device;
    ipc = atomic_load(&state_get()->ipc);
    if (attribute == IS_INTEGRATED)
        *value = atomic_load(&state_get()->integrated);
    else if (attribute == SUPPORTS_IPC && ipc >= 0)
        *value = ipc;
    else
        return INVALID_VALUE;
    return OK;
}

int cuDeviceGetName(char *name, int nbytes, int device)
{
    BEGIN();
    (void)device;
    if (nbytes < 1)
        return INVALID_VALUE;
    strncpy(name, "Stand-in", (size_t)nbytes - 1);
    name[nbytes - 1] = 0;
    return OK;
}

int cuDeviceTotalMem_v2(size_t *nbytes, int device)
{
    BEGIN();
    (void)device;
    *nbytes = state_get()->device_bytes;
    return OK;
}

int cuDeviceCanAccessPeer(int *can, int device, int other)
{
    BEGIN();
    (void)device, (void)other;
    *can = 1;
    return OK;
}

int cuDevicePrimaryCtxRetain(struct context **context, int device)
{
    BEGIN();
    if (device < 0 || device >= (int)state_get()->devices)
        return INVALID_DEVICE;
    contexts[device].device = device;
    atomic_fetch_add(&contexts[device].retained, 1);
    *context = &contexts[device];
    return OK;
}

static void destroy(int device)
{
    streams_reset(device);
    memory_reset(device);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN();
    if (device < 0 || device >= DEVICES_MAX || atomic_load(&contexts[device].retained) < 1)
        return INVALID_CONTEXT;
    if (atomic_fetch_sub(&contexts[device].retained, 1) == 1)
        destroy(device);
    return OK;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    BEGIN();
    if (device < 0 || device >= DEVICES_MAX)
        return INVALID_DEVICE;
    *flags = 0;
    *active = atomic_load(&contexts[device].retained) > 0;
    return OK;
}

int cuDevicePrimaryCtxReset_v2(int device)
{
    BEGIN();
    if (device < 0 || device >= DEVICES_MAX)
        return INVALID_DEVICE;
    destroy(device);
    return OK;
}

int cuCtxSetCurrent(struct context *context)
{
    BEGIN();
    depth = depth ? depth : 1;
    stack[depth - 1] = context;
    return OK;
}

int cuCtxGetCurrent(struct context **context)
{
    BEGIN();
    *context = depth ? stack[depth - 1] : NULL;
    return OK;
}

int cuCtxGetDevice(int *device)
{
    BEGIN();
    CONTEXT();
    *device = context_device();
    return OK;
}

int cuCtxPushCurrent_v2(struct context *context)
{
    BEGIN();
    if (depth == STACK_MAX)
        return INVALID_VALUE;
    stack[depth++] = context;
    return OK;
}

int cuCtxPopCurrent_v2(struct context **context)
{
    BEGIN();
    CONTEXT();
    depth--;
    if (context)
        *context = stack[depth];
    return OK;
}

static const struct { int code; const char *name, *text; } errors[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is mapped"},
    {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

static int described(int code, const char **text, int name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *text = name ? errors[i].name : errors[i].text;
            return OK;
        }
    *text = NULL;
    return INVALID_VALUE;
}

int cuGetErrorString(int code, const char **text) { return described(code, text, 0); }
int cuGetErrorName(int code, const char **text) { return described(code, text, 1); }
