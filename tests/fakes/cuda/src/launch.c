/*
 * Kernels that take a set time: `us_500` of any module takes 500 microseconds. Nothing is computed but the prover's kernels,
 * which `proof.c` has; the work of a process is a line of time that grows with each launch. A launch returns at once until
 * as many are pending as the driver's queue holds.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

#define FUNCTIONS_MOST 64
#define QUEUE 1024

struct function {
    uint64_t nanoseconds;
    int kernel; /* of the prover's */
};
struct shape {
    unsigned sizes[7];
    void *stream;
};
struct several {
    struct function *function;
    unsigned sizes[7];
    void *stream;
    void **arguments;
};

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct function functions[FUNCTIONS_MOST], kernels[4];
static uint64_t end_ns, ends[QUEUE], launched, forgotten_ns;
static int module;

uint64_t launch_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - forgotten_ns;
}

void launch_forget(uint64_t nanoseconds) {
    forgotten_ns += nanoseconds;
}

uint64_t launch_end(void) {
    pthread_mutex_lock(&changing);
    uint64_t end = end_ns;
    pthread_mutex_unlock(&changing);
    return end;
}

void launch_wait(uint64_t until_ns) {
    until_ns += forgotten_ns;
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0);
}

void launch_add(uint64_t nanoseconds) {
    pthread_mutex_lock(&changing);
    uint64_t now = launch_now(), *place = &ends[launched++ % QUEUE], free_at = *place;
    end_ns = (end_ns > now ? end_ns : now) + nanoseconds;
    *place = end_ns;
    pthread_mutex_unlock(&changing);
    account_busy(nanoseconds);
    if (free_at > now) launch_wait(free_at);
}

uint64_t launch_duration(const void *function) {
    return ((const struct function *)function)->nanoseconds;
}

EXPORT result cuModuleLoadData(void **made, const void *image) {
    BEGIN;
    REQUIRE(made && image, INVALID_VALUE);
    *made = &module;
    return SUCCESS;
}

EXPORT result cuModuleGetFunction(struct function **function, void *of, const char *name) {
    BEGIN;
    int kernel = function && of ? proof_find(name) : 0;
    if (kernel) {
        kernels[kernel].kernel = kernel;
        *function = &kernels[kernel];
        return SUCCESS;
    }
    REQUIRE(function && of && strncmp(name, "us_", 3) == 0, NOT_FOUND);
    uint64_t nanoseconds = strtoull(name + 3, NULL, 10) * 1000;
    pthread_mutex_lock(&changing);
    int i = 0;
    while (i < FUNCTIONS_MOST - 1 && functions[i].nanoseconds && functions[i].nanoseconds != nanoseconds) i++;
    functions[i].nanoseconds = nanoseconds;
    *function = &functions[i];
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}

static result launch(const struct function *function, void *stream) {
    REQUIRE(context_current(), INVALID_CONTEXT);
    REQUIRE(function >= functions && function < functions + FUNCTIONS_MOST, INVALID_HANDLE);
    struct graph *graph = stream_capturing(stream);
    if (graph) return graph_add_kernel(graph, function);
    launch_add(function->nanoseconds);
    return SUCCESS;
}

#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define IGNORE (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared

EXPORT result cuLaunchKernel(struct function *function, SHAPE, void *stream, void **arguments, void **extra) {
    BEGIN;
    IGNORE, (void)extra;
    if (function >= kernels && function < kernels + 4 && context_current()) {
        launch_add(proof_run(function->kernel, context_current()->device, gx, arguments));
        return SUCCESS;
    }
    return launch(function, stream);
}

EXPORT result cuLaunchKernel_ptsz(struct function *function, SHAPE, void *stream, void **arguments, void **extra) {
    BEGIN;
    IGNORE, (void)arguments, (void)extra;
    return launch(function, stream);
}

EXPORT result cuLaunchKernelEx(const struct shape *shape, struct function *function, void **arguments, void **extra) {
    BEGIN;
    (void)arguments, (void)extra;
    REQUIRE(shape, INVALID_VALUE);
    return launch(function, shape->stream);
}

EXPORT result cuLaunchKernelEx_ptsz(const struct shape *shape, struct function *function, void **arguments,
                                    void **extra) {
    BEGIN;
    (void)arguments, (void)extra;
    REQUIRE(shape, INVALID_VALUE);
    return launch(function, shape->stream);
}

EXPORT result cuLaunchCooperativeKernel(struct function *function, SHAPE, void *stream, void **arguments) {
    BEGIN;
    IGNORE, (void)arguments;
    return launch(function, stream);
}

EXPORT result cuLaunchCooperativeKernel_ptsz(struct function *function, SHAPE, void *stream, void **arguments) {
    BEGIN;
    IGNORE, (void)arguments;
    return launch(function, stream);
}

EXPORT result cuLaunchCooperativeKernelMultiDevice(const struct several *launches, unsigned count, unsigned flags) {
    BEGIN;
    (void)flags;
    REQUIRE(launches && count > 0, INVALID_VALUE);
    return launch(launches->function, launches->stream);
}

EXPORT result cuLaunch(struct function *function) {
    BEGIN;
    return launch(function, NULL);
}

EXPORT result cuLaunchGrid(struct function *function, int width, int height) {
    BEGIN;
    (void)width, (void)height;
    return launch(function, NULL);
}

EXPORT result cuLaunchGridAsync(struct function *function, int width, int height, void *stream) {
    BEGIN;
    (void)width, (void)height;
    return launch(function, stream);
}
