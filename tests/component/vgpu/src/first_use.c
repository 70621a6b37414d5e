/*
 * first_use THREADS BYTES: threads that all at once make the first call of this process to the driver's functions, each by
 * another way; prints how many were granted, and fails where two were led to different places.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS_MOST 64

typedef int (*allocate)(unsigned long long *, size_t);
typedef int (*address)(const char *, void **, int, uint64_t, int *);

static pthread_barrier_t together;
static void *driver, *context;
static size_t bytes;
static void *found[THREADS_MOST];
static atomic_uint granted;

static void *take(void *number) {
    unsigned own = (unsigned)(uintptr_t)number;
    unsigned long long at;
    int (*set_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    set_current(context);
    pthread_barrier_wait(&together);
    if (own % 2) ((address)dlsym(driver, "cuGetProcAddress_v2"))("cuMemAlloc", &found[own], 12080, 0, NULL);
    else found[own] = dlsym(driver, "cuMemAlloc_v2");
    granted += ((allocate)found[own])(&at, bytes) == 0;
    return NULL;
}

int main(int count, char **words) {
    pthread_t running[THREADS_MOST];
    unsigned threads = count > 2 ? (unsigned)atoi(words[1]) : 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver || threads == 0 || threads > THREADS_MOST) return 2;
    bytes = (size_t)atoll(words[2]);
    if (((int (*)(unsigned))dlsym(driver, "cuInit"))(0) ||
        ((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0))
        return 3;
    pthread_barrier_init(&together, NULL, threads);
    for (unsigned i = 0; i < threads; i++) pthread_create(&running[i], NULL, take, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < threads; i++) pthread_join(running[i], NULL);
    printf("%u\n", (unsigned)granted);
    for (unsigned i = 1; i < threads; i++)
        if (found[i] != found[0]) return 4;
    return 0;
}
