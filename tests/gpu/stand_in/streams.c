/* Streams, events and copies.  What is queued is done later, by a thread of the stream.  See state.h. */
#define _GNU_SOURCE
#include "state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CAPTURING = 1, BROKEN = 2 };
enum kind { COPY_IN, COPY_OUT, COPY_DEVICE, FILL, RECORD, WAIT };

struct operation {
    struct operation *next;
    enum kind kind;
    device_pointer device, source;
    char *host;
    size_t nbytes;
    unsigned char value;
    uint32_t event;
    uint64_t number; /* of an event: this recording */
    int is_pinned; /* the host's memory, when it was queued */
    int on; /* the device that was current then */
};

struct stream {
    struct stream *next;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct operation *first, **last;
    int busy, ending, failed; /* failed: what the next call that waits answers, as the driver does */
    int capturing;            /* what is queued goes into a graph; BROKEN: the capture was invalidated */
    int on;                   /* the device whose context it is in; -1: none */
};

struct handle_of_event { uint32_t row; };

static struct stream *streams;
static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static struct stream *standard; /* stream 0 */

static void sleep_us(uint32_t us)
{
    struct timespec time = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&time, NULL);
}

static int is_held(size_t nbytes, int on)
{
    uint32_t held = atomic_load(&state_get()->held);
    int32_t device = atomic_load(&state_get()->held_device);
    return held && nbytes + 1 >= held && (device < 0 || device == on);
}

/* A test looks at what others do meanwhile. */
static void wait_while_held(size_t nbytes, int on)
{
    if (is_held(nbytes, on))
        state_count(OPERATIONS_HELD, 1);
    while (is_held(nbytes, on))
        sleep_us(100);
}

/* Ranges that overlap: CUDA does not say what is there then.  Here it is the order in which most goes wrong. */
static int upon_itself(device_pointer to, device_pointer from, size_t nbytes)
{
    enum { STEP = 4096 };
    char piece[STEP];
    int failed = OK;
    for (size_t done = 0; done < nbytes && !failed;) {
        size_t n = nbytes - done < STEP ? nbytes - done : STEP, at = to > from ? done : nbytes - done - n;
        failed = memory_read(from + at, piece, n);
        if (!failed)
            failed = memory_write(to + at, piece, n);
        done += n;
    }
    return failed;
}

static int between(device_pointer to, device_pointer from, size_t nbytes)
{
    char *copy;
    int failed;
    if (to != from && (to > from ? to - from : from - to) < nbytes)
        return upon_itself(to, from, nbytes);
    copy = malloc(nbytes ? nbytes : 1);
    failed = copy ? memory_read(from, copy, nbytes) : OUT_OF_MEMORY;
    if (!failed)
        failed = memory_write(to, copy, nbytes);
    free(copy);
    return failed;
}

static int fill(device_pointer at, unsigned char value, size_t nbytes)
{
    char *bytes = malloc(nbytes ? nbytes : 1);
    int failed = bytes ? OK : OUT_OF_MEMORY;
    if (bytes) {
        memset(bytes, value, nbytes);
        failed = memory_write(at, bytes, nbytes);
    }
    free(bytes);
    return failed;
}

/* Until a recording of an event is reached, in whatever process. */
static void await_event(uint32_t row, uint64_t number)
{
    struct event *event = &state_get()->events[row];
    while (atomic_load(&event->used) && atomic_load(&event->done) < number)
        sleep_us(20);
}

static int perform(struct operation *each)
{
    struct event *event = &state_get()->events[each->event];
    if (each->is_pinned && memory_is_pinned(each->host, each->nbytes) != 1)
        state_count(USED_UNPINNED, 1);
    switch (each->kind) {
    case COPY_IN:
        return memory_write(each->device, each->host, each->nbytes);
    case COPY_OUT:
        return memory_read(each->device, each->host, each->nbytes);
    case COPY_DEVICE:
        return between(each->device, each->source, each->nbytes);
    case FILL:
        return fill(each->device, each->value, each->nbytes);
    case RECORD:
        if (atomic_load(&event->done) < each->number)
            atomic_store(&event->done, each->number);
        return OK;
    case WAIT:
        await_event(each->event, each->number);
        return OK;
    }
    return INVALID_VALUE;
}

static void *work(void *argument)
{
    struct stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    while (!stream->ending || stream->first) {
        struct operation *each = stream->first;
        int failed;
        if (!each) {
            pthread_cond_wait(&stream->news, &stream->lock);
            continue;
        }
        stream->first = each->next;
        if (!stream->first)
            stream->last = &stream->first;
        stream->busy = 1;
        pthread_mutex_unlock(&stream->lock);
        sleep_us(atomic_load(&state_get()->delay_us));
        wait_while_held(each->nbytes, each->on);
        failed = perform(each);
        free(each);
        pthread_mutex_lock(&stream->lock);
        stream->busy = 0;
        if (failed && !stream->failed)
            stream->failed = failed;
        pthread_cond_broadcast(&stream->news);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static struct stream *make(int on)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->news, NULL);
    stream->last = &stream->first;
    stream->on = on;
    if (pthread_create(&stream->thread, NULL, work, stream)) {
        free(stream);
        return NULL;
    }
    pthread_mutex_lock(&all);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&all);
    return stream;
}

static void make_standard(void) { standard = make(-1); }

/* 0, 1 and 2 are the driver's names for its own streams. */
static struct stream *stream_of(struct stream *given)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stream *found = NULL;
    if ((uintptr_t)given <= 2) {
        pthread_once(&once, make_standard);
        return standard;
    }
    pthread_mutex_lock(&all);
    for (struct stream *each = streams; each; each = each->next)
        if (each == given)
            found = each;
    pthread_mutex_unlock(&all);
    return found;
}

static int queue(struct stream *given, struct operation wanted)
{
    struct stream *stream = stream_of(given);
    struct operation *each = malloc(sizeof *each);
    if (!stream || !each) {
        free(each);
        return stream ? OUT_OF_MEMORY : INVALID_HANDLE;
    }
    *each = wanted;
    each->next = NULL;
    each->on = context_device();
    pthread_mutex_lock(&stream->lock);
    if (stream->capturing) {
        pthread_mutex_unlock(&stream->lock);
        free(each);
        return OK;
    }
    *stream->last = each;
    stream->last = &each->next;
    pthread_cond_broadcast(&stream->news);
    pthread_mutex_unlock(&stream->lock);
    return OK;
}

static int settle(struct stream *stream)
{
    int failed;
    pthread_mutex_lock(&stream->lock);
    while (stream->first || stream->busy)
        pthread_cond_wait(&stream->news, &stream->lock);
    failed = stream->failed;
    stream->failed = OK;
    pthread_mutex_unlock(&stream->lock);
    return failed;
}

/* Whoever waits for a stream that is capturing, or for its context, breaks the capture, from whatever thread. */
static int break_capture(struct stream *stream)
{
    int broken;
    pthread_mutex_lock(&stream->lock);
    if (stream->capturing)
        stream->capturing = BROKEN;
    broken = stream->capturing;
    pthread_mutex_unlock(&stream->lock);
    return broken;
}

int cuStreamBeginCapture_v2(struct stream *given, int mode)
{
    struct stream *stream;
    BEGIN();
    (void)mode;
    stream = (uintptr_t)given > 2 ? stream_of(given) : NULL;
    if (!stream)
        return INVALID_HANDLE;
    pthread_mutex_lock(&stream->lock);
    stream->capturing = CAPTURING;
    pthread_mutex_unlock(&stream->lock);
    return OK;
}

int cuStreamEndCapture(struct stream *given, void **graph)
{
    struct stream *stream;
    int was;
    BEGIN();
    stream = stream_of(given);
    if (!stream)
        return INVALID_HANDLE;
    pthread_mutex_lock(&stream->lock);
    was = stream->capturing;
    stream->capturing = 0;
    pthread_mutex_unlock(&stream->lock);
    *graph = was == CAPTURING ? stream : NULL;
    return was == CAPTURING ? OK : was == BROKEN ? CAPTURE_INVALIDATED : INVALID_VALUE;
}

int cuStreamCreate(struct stream **stream, unsigned flags)
{
    BEGIN();
    CONTEXT();
    (void)flags;
    *stream = make(context_device());
    if (*stream)
        state_count(STREAMS_MADE, 1);
    return *stream ? OK : OUT_OF_MEMORY;
}

int cuStreamDestroy_v2(struct stream *given)
{
    struct stream *stream, **at = &streams;
    BEGIN();
    stream = (uintptr_t)given > 2 ? stream_of(given) : NULL;
    if (!stream)
        return INVALID_HANDLE;
    pthread_mutex_lock(&all);
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&all);
    pthread_mutex_lock(&stream->lock);
    stream->ending = 1;
    pthread_cond_broadcast(&stream->news);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    state_count(STREAMS_ENDED, 1);
    return OK;
}

/* CUDA forbids that others use the context meanwhile: that is counted, and what is queued is dropped.  They may hold the
 * stream still, so it is not given back. */
void streams_reset(int device)
{
    struct stream **at = &streams;
    pthread_mutex_lock(&all);
    while (*at) {
        struct stream *stream = *at;
        if (stream->on != device) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        pthread_mutex_lock(&stream->lock);
        state_count(RESET_WHILE_USED, stream->first || stream->busy);
        stream->ending = 1;
        while (stream->first) {
            struct operation *each = stream->first;
            stream->first = each->next;
            free(each);
        }
        stream->last = &stream->first;
        pthread_cond_broadcast(&stream->news);
        pthread_mutex_unlock(&stream->lock);
        pthread_detach(stream->thread);
        state_count(STREAMS_ENDED, 1);
    }
    pthread_mutex_unlock(&all);
}

int cuStreamSynchronize(struct stream *given)
{
    struct stream *stream;
    BEGIN();
    stream = stream_of(given);
    if (!stream)
        return INVALID_HANDLE;
    return break_capture(stream) ? CAPTURE_UNSUPPORTED : settle(stream);
}

int cuCtxSynchronize(void)
{
    int failed = OK;
    BEGIN();
    CONTEXT();
    stream_of(NULL);
    pthread_mutex_lock(&all);
    for (struct stream *each = streams; each; each = each->next)
        if (break_capture(each))
            failed = CAPTURE_UNSUPPORTED;
    for (struct stream *each = streams; each && !failed; each = each->next) {
        int reason = settle(each);
        failed = failed ? failed : reason;
    }
    pthread_mutex_unlock(&all);
    return failed;
}

/* ---- copies */

/* Memory that is not pinned is read before the call returns, as the driver does with it. */
int cuMemcpyHtoDAsync_v2(device_pointer to, const void *from, size_t nbytes, struct stream *stream)
{
    int is_pinned;
    BEGIN();
    CONTEXT();
    is_pinned = memory_is_pinned(from, nbytes);
    if (is_pinned < 0)
        return INVALID_VALUE;
    state_count(HOST_TO_DEVICE, 1);
    state_count(HOST_BYTES, nbytes);
    state_count(PINNED_COPIES, (uint64_t)is_pinned);
    if (is_pinned)
        return queue(stream, (struct operation){
            .kind = COPY_IN, .device = to, .host = (char *)(uintptr_t)from, .nbytes = nbytes, .is_pinned = 1});
    if (!stream_of(stream))
        return INVALID_HANDLE;
    settle(stream_of(stream));
    wait_while_held(nbytes, context_device());
    return memory_write(to, from, nbytes);
}

int cuMemcpyDtoHAsync_v2(void *to, device_pointer from, size_t nbytes, struct stream *stream)
{
    int is_pinned;
    BEGIN();
    CONTEXT();
    is_pinned = memory_is_pinned(to, nbytes);
    if (is_pinned < 0)
        return INVALID_VALUE;
    state_count(DEVICE_TO_HOST, 1);
    state_count(HOST_BYTES, nbytes);
    state_count(PINNED_COPIES, (uint64_t)is_pinned);
    return queue(stream, (struct operation){
        .kind = COPY_OUT, .device = from, .host = to, .nbytes = nbytes, .is_pinned = is_pinned});
}

int cuMemcpyDtoDAsync_v2(device_pointer to, device_pointer from, size_t nbytes, struct stream *stream)
{
    BEGIN();
    CONTEXT();
    state_count(DEVICE_TO_DEVICE, 1);
    return queue(stream, (struct operation){.kind = COPY_DEVICE, .device = to, .source = from, .nbytes = nbytes});
}

int cuMemsetD8Async(device_pointer at, unsigned char value, size_t nbytes, struct stream *stream)
{
    BEGIN();
    CONTEXT();
    return queue(stream, (struct operation){.kind = FILL, .device = at, .value = value, .nbytes = nbytes});
}

int cuMemcpyHtoD_v2(device_pointer to, const void *from, size_t nbytes)
{
    BEGIN();
    CONTEXT();
    if (memory_is_pinned(from, nbytes) < 0)
        return INVALID_VALUE;
    state_count(HOST_TO_DEVICE, 1);
    state_count(HOST_BYTES, nbytes);
    return memory_write(to, from, nbytes);
}

int cuMemcpyDtoH_v2(void *to, device_pointer from, size_t nbytes)
{
    BEGIN();
    CONTEXT();
    if (memory_is_pinned(to, nbytes) < 0)
        return INVALID_VALUE;
    state_count(DEVICE_TO_HOST, 1);
    state_count(HOST_BYTES, nbytes);
    return memory_read(from, to, nbytes);
}

int cuMemcpyDtoD_v2(device_pointer to, device_pointer from, size_t nbytes)
{
    BEGIN();
    CONTEXT();
    state_count(DEVICE_TO_DEVICE, 1);
    return between(to, from, nbytes);
}

/* ---- events; one is a number of its row, plus one */

int cuEventCreate(uintptr_t *made, unsigned flags)
{
    struct state *state;
    BEGIN();
    CONTEXT();
    (void)flags;
    state = state_get();
    for (uint32_t row = 0; row < EVENTS_MAX; row++) {
        uint32_t is_free = 0;
        if (!atomic_compare_exchange_strong(&state->events[row].used, &is_free, 1))
            continue;
        atomic_store(&state->events[row].recorded, 0);
        atomic_store(&state->events[row].done, 0);
        state_count(EVENTS_MADE, 1);
        *made = row + 1;
        return OK;
    }
    return OUT_OF_MEMORY;
}

static struct event *event_of(uintptr_t given)
{
    return given && given <= EVENTS_MAX && atomic_load(&state_get()->events[given - 1].used) ? &state_get()->events[given - 1]
                                                                                          : NULL;
}

int cuEventDestroy_v2(uintptr_t given)
{
    struct event *event;
    BEGIN();
    event = event_of(given);
    if (!event)
        return INVALID_HANDLE;
    atomic_store(&event->used, 0);
    state_count(EVENTS_ENDED, 1);
    return OK;
}

int cuEventRecord(uintptr_t given, struct stream *stream)
{
    struct event *event;
    BEGIN();
    event = event_of(given);
    if (!event)
        return INVALID_HANDLE;
    return queue(stream, (struct operation){
        .kind = RECORD, .event = (uint32_t)given - 1, .number = atomic_fetch_add(&event->recorded, 1) + 1});
}

int cuStreamWaitEvent(struct stream *stream, uintptr_t given, unsigned flags)
{
    struct event *event;
    BEGIN();
    (void)flags;
    event = event_of(given);
    if (!event)
        return INVALID_HANDLE;
    return queue(stream, (struct operation){
        .kind = WAIT, .event = (uint32_t)given - 1, .number = atomic_load(&event->recorded)});
}

int cuEventQuery(uintptr_t given)
{
    struct event *event;
    BEGIN();
    event = event_of(given);
    if (!event)
        return INVALID_HANDLE;
    return atomic_load(&event->done) >= atomic_load(&event->recorded) ? OK : NOT_READY;
}

int cuEventSynchronize(uintptr_t given)
{
    struct event *event;
    BEGIN();
    event = event_of(given);
    if (!event)
        return INVALID_HANDLE;
    await_event((uint32_t)given - 1, atomic_load(&event->recorded));
    return OK;
}

int cuIpcGetEventHandle(ipc_handle *handle, uintptr_t given)
{
    struct handle_of_event row = {(uint32_t)given};
    BEGIN();
    if (!event_of(given))
        return INVALID_HANDLE;
    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes, "events!", 8);
    memcpy(handle->bytes + 8, &row, sizeof row);
    return OK;
}

int cuIpcOpenEventHandle(uintptr_t *event, ipc_handle handle)
{
    struct handle_of_event row;
    BEGIN();
    CONTEXT();
    memcpy(&row, handle.bytes + 8, sizeof row);
    if (memcmp(handle.bytes, "events!", 8) || !event_of(row.row))
        return INVALID_HANDLE;
    *event = row.row;
    return OK;
}
