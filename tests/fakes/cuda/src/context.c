/* Contexts: primary ones, made ones, and each thread's stack of current ones. */
#include <pthread.h>
#include <stdlib.h>

#include "fake.h"

#define STACK_MOST 32

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct context primary[DEVICES_MOST];
static struct context *made;
static __thread struct context *stack[STACK_MOST];
static __thread int depth;

static uint64_t count_overhead(void) {
    return fake_number("FAKE_CUDA_CONTEXT_BYTES", 0);
}

static int is_known(const struct context *context) {
    int known = context >= primary && context < primary + DEVICES_MOST && context->retained > 0;
    for (const struct context *each = made; each && !known; each = each->next) known = each == context;
    return known;
}

/* The thread's, if it was not destroyed meanwhile. */
struct context *context_current(void) {
    pthread_mutex_lock(&changing);
    struct context *context = depth > 0 && is_known(stack[depth - 1]) ? stack[depth - 1] : NULL;
    pthread_mutex_unlock(&changing);
    return context;
}

static void end(const struct context *context) {
    memory_forget(context);
    array_forget(context);
    events_forget(context);
    account_credit(context->device, count_overhead());
}

static result push(struct context *context) {
    REQUIRE(depth < STACK_MOST, OUT_OF_MEMORY);
    stack[depth++] = context;
    return SUCCESS;
}

static result create(struct context **context, device which) {
    REQUIRE(context, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    result verdict = account_charge(which, count_overhead());
    REQUIRE(verdict == SUCCESS, verdict);
    struct context *fresh = calloc(1, sizeof *fresh);
    REQUIRE(fresh, OUT_OF_MEMORY);
    fresh->device = which;
    pthread_mutex_lock(&changing);
    fresh->next = made;
    made = fresh;
    pthread_mutex_unlock(&changing);
    *context = fresh;
    return push(fresh);
}

EXPORT result cuCtxCreate(struct context **context, unsigned flags, device which) {
    BEGIN;
    (void)flags;
    return create(context, which);
}

EXPORT result cuCtxCreate_v2(struct context **context, unsigned flags, device which) {
    BEGIN;
    (void)flags;
    return create(context, which);
}

EXPORT result cuCtxCreate_v3(struct context **context, void *affinities, int count, unsigned flags, device which) {
    BEGIN;
    (void)affinities, (void)count, (void)flags;
    return create(context, which);
}

EXPORT result cuCtxCreate_v4(struct context **context, void *parameters, unsigned flags, device which) {
    BEGIN;
    (void)parameters, (void)flags;
    return create(context, which);
}

static result destroy(struct context *context) {
    pthread_mutex_lock(&changing);
    struct context **place = &made;
    while (*place && *place != context) place = &(*place)->next;
    struct context *found = *place;
    if (found) *place = found->next;
    pthread_mutex_unlock(&changing);
    REQUIRE(found, INVALID_CONTEXT);
    end(found);
    if (depth > 0 && stack[depth - 1] == found) depth--;
    free(found);
    return SUCCESS;
}

EXPORT result cuCtxDestroy(struct context *context) {
    BEGIN;
    return destroy(context);
}

EXPORT result cuCtxDestroy_v2(struct context *context) {
    BEGIN;
    return destroy(context);
}

EXPORT result cuDevicePrimaryCtxRetain(struct context **context, device which) {
    BEGIN;
    REQUIRE(context, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    pthread_mutex_lock(&changing);
    result verdict = primary[which].retained ? SUCCESS : account_charge(which, count_overhead());
    if (verdict == SUCCESS) {
        primary[which].device = which;
        primary[which].retained++;
        *context = &primary[which];
    }
    pthread_mutex_unlock(&changing);
    return verdict;
}

EXPORT result cuDevicePrimaryCtxGetState(device which, unsigned *flags, int *active) {
    BEGIN;
    REQUIRE(flags && active, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    pthread_mutex_lock(&changing);
    *flags = 0;
    *active = primary[which].retained > 0;
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}

static result release(device which, int all) {
    REQUIRE_DEVICE(which);
    pthread_mutex_lock(&changing);
    unsigned before = primary[which].retained;
    primary[which].retained = all || before == 0 ? 0 : before - 1;
    int ended = before > 0 && primary[which].retained == 0;
    if (ended) end(&primary[which]);
    pthread_mutex_unlock(&changing);
    return before > 0 || all ? SUCCESS : INVALID_CONTEXT;
}

EXPORT result cuDevicePrimaryCtxRelease(device which) {
    BEGIN;
    return release(which, 0);
}

EXPORT result cuDevicePrimaryCtxRelease_v2(device which) {
    BEGIN;
    return release(which, 0);
}

EXPORT result cuDevicePrimaryCtxReset(device which) {
    BEGIN;
    return release(which, 1);
}

EXPORT result cuDevicePrimaryCtxReset_v2(device which) {
    BEGIN;
    return release(which, 1);
}

EXPORT result cuCtxGetCurrent(struct context **context) {
    BEGIN;
    REQUIRE(context, INVALID_VALUE);
    *context = context_current();
    return SUCCESS;
}

EXPORT result cuCtxSetCurrent(struct context *context) {
    BEGIN;
    depth = depth > 0 ? depth - 1 : 0;
    return context ? push(context) : SUCCESS;
}

EXPORT result cuCtxPushCurrent_v2(struct context *context) {
    BEGIN;
    REQUIRE(context, INVALID_CONTEXT);
    return push(context);
}

EXPORT result cuCtxPopCurrent_v2(struct context **context) {
    BEGIN;
    REQUIRE(depth > 0, INVALID_CONTEXT);
    depth--;
    if (context) *context = stack[depth];
    return SUCCESS;
}

EXPORT result cuCtxGetDevice(device *which) {
    BEGIN;
    REQUIRE(which, INVALID_VALUE);
    const struct context *context = context_current();
    REQUIRE(context, INVALID_CONTEXT);
    *which = context->device;
    return SUCCESS;
}
