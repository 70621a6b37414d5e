/* Streams and events: always done with everything, and captured into a graph where a program wants that. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake.h"

enum { CAPTURING = 1 };

struct stream {
    const struct context *context;
    struct graph *graph;
};
struct event {
    struct event *next;
    const struct context *context;
    uint64_t at_ns; /* when all that came before it is done */
};

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct event *events;

/* The three small numbers are streams that every context has. */
static int is_made(const void *stream) {
    return (uintptr_t)stream > 2;
}

struct graph *stream_capturing(void *stream) {
    return is_made(stream) ? ((struct stream *)stream)->graph : NULL;
}

EXPORT result cuStreamCreate(struct stream **stream, unsigned flags) {
    BEGIN;
    (void)flags;
    const struct context *context = context_current();
    REQUIRE(stream, INVALID_VALUE);
    REQUIRE(context, INVALID_CONTEXT);
    *stream = calloc(1, sizeof **stream);
    REQUIRE(*stream, OUT_OF_MEMORY);
    (*stream)->context = context;
    return SUCCESS;
}

EXPORT result cuStreamDestroy_v2(struct stream *stream) {
    BEGIN;
    REQUIRE(is_made(stream), INVALID_HANDLE);
    free(stream);
    return SUCCESS;
}

EXPORT result cuStreamGetCtx(struct stream *stream, const struct context **context) {
    BEGIN;
    REQUIRE(context, INVALID_VALUE);
    *context = is_made(stream) ? stream->context : context_current();
    return SUCCESS;
}

static result synchronize(void) {
    REQUIRE(context_current(), INVALID_CONTEXT);
    launch_wait(launch_end());
    pool_synchronize();
    return SUCCESS;
}

EXPORT result cuStreamSynchronize(void *stream) {
    BEGIN;
    (void)stream;
    return synchronize();
}

EXPORT result cuStreamSynchronize_ptsz(void *stream) {
    BEGIN;
    (void)stream;
    return synchronize();
}

EXPORT result cuCtxSynchronize(void) {
    BEGIN;
    return synchronize();
}

EXPORT result cuCtxSynchronize_v2(struct context *context) {
    BEGIN;
    (void)context;
    return synchronize();
}

EXPORT result cuEventCreate(struct event **event, unsigned flags) {
    BEGIN;
    (void)flags;
    REQUIRE(event, INVALID_VALUE);
    struct event *fresh = calloc(1, sizeof *fresh);
    REQUIRE(fresh, OUT_OF_MEMORY);
    fresh->context = context_current();
    pthread_mutex_lock(&changing);
    fresh->next = events;
    events = fresh;
    pthread_mutex_unlock(&changing);
    *event = fresh;
    return SUCCESS;
}

static void free_those(const struct event *event, const struct context *context) {
    pthread_mutex_lock(&changing);
    for (struct event **place = &events; *place;) {
        struct event *each = *place;
        if (each != event && (!context || each->context != context)) {
            place = &each->next;
            continue;
        }
        *place = each->next;
        free(each);
    }
    pthread_mutex_unlock(&changing);
}

void events_forget(const struct context *context) {
    free_those(NULL, context);
}

/* What CUDA calls undefined is the program's end here: the events of a context end with it. */
static int is_event(const struct event *event) {
    pthread_mutex_lock(&changing);
    const struct event *each = events;
    while (each && each != event) each = each->next;
    pthread_mutex_unlock(&changing);
    if (event && !each) {
        fprintf(stderr, "fake driver: an event that is no more\n");
        abort();
    }
    return event != NULL;
}

EXPORT result cuEventSynchronize(struct event *event) {
    BEGIN;
    REQUIRE(is_event(event), INVALID_HANDLE);
    launch_wait(event->at_ns);
    pool_synchronize();
    return SUCCESS;
}

EXPORT result cuEventDestroy_v2(struct event *event) {
    BEGIN;
    REQUIRE(is_event(event), INVALID_HANDLE);
    free_those(event, NULL);
    return SUCCESS;
}

static result record(struct event *event, void *stream) {
    REQUIRE(is_event(event) && !stream_capturing(stream), INVALID_HANDLE);
    REQUIRE(event->context == (is_made(stream) ? ((struct stream *)stream)->context : context_current()),
            INVALID_HANDLE);
    uint64_t now = launch_now(), end = launch_end();
    event->at_ns = end > now ? end : now;
    return SUCCESS;
}

EXPORT result cuEventRecord(struct event *event, void *stream) {
    BEGIN;
    return record(event, stream);
}

EXPORT result cuEventRecord_ptsz(struct event *event, void *stream) {
    BEGIN;
    return record(event, stream);
}

EXPORT result cuEventQuery(const struct event *event) {
    BEGIN;
    REQUIRE(is_event(event), INVALID_HANDLE);
    return event->at_ns > launch_now() ? NOT_READY : SUCCESS;
}

EXPORT result cuEventElapsedTime(float *milliseconds, const struct event *first, const struct event *last) {
    BEGIN;
    REQUIRE(milliseconds && is_event(first) && is_event(last), INVALID_VALUE);
    REQUIRE(last->at_ns <= launch_now(), NOT_READY);
    *milliseconds = (float)((double)(last->at_ns - first->at_ns) / 1e6);
    return SUCCESS;
}

/* There is nothing that this driver would refuse while something is captured. */
EXPORT result cuThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int current;
    BEGIN;
    REQUIRE(mode, INVALID_VALUE);
    int before = current;
    current = *mode;
    *mode = before;
    return SUCCESS;
}

EXPORT result cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    BEGIN;
    (void)mode;
    REQUIRE(is_made(stream) && !stream->graph, INVALID_VALUE);
    stream->graph = graph_create();
    return stream->graph ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT result cuStreamEndCapture(struct stream *stream, struct graph **graph) {
    BEGIN;
    REQUIRE(graph && stream_capturing(stream), INVALID_VALUE);
    *graph = stream->graph;
    stream->graph = NULL;
    return SUCCESS;
}

EXPORT result cuStreamIsCapturing(void *stream, int *status) {
    BEGIN;
    REQUIRE(status, INVALID_VALUE);
    *status = stream_capturing(stream) ? CAPTURING : 0;
    return SUCCESS;
}

EXPORT result cuStreamIsCapturing_ptsz(void *stream, int *status) {
    BEGIN;
    REQUIRE(status, INVALID_VALUE);
    *status = stream_capturing(stream) ? CAPTURING : 0;
    return SUCCESS;
}
