/*
 * race THREADS MILLISECONDS MOST: threads that take memory of several kinds, up to MOST bytes a piece, and give it back, by
 * whatever stands before this program. Holds nothing at its end; 1 where a call was answered as none may be.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define HELD 8
#define THREADS_MOST 64

typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t);

enum kind { LINEAR, IN_ORDER, APART, ARRAY, KINDS };

static const char *const takes[] = {"cuMemAlloc_v2", "cuMemAllocAsync", "cuMemCreate", "cuArrayCreate_v2"};
static const char *const gives[] = {"cuMemFree_v2", "cuMemFreeAsync", "cuMemRelease", "cuArrayDestroy"};
static any take[KINDS], give[KINDS], set_current, synchronize;
static void *context;
static uint64_t until_ns, most;
static atomic_uint granted, refused, wrong;

struct held {
    uint64_t at;
    enum kind kind;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int take_one(struct held *one, uint64_t bytes) {
    const int on_device[] = {1, 0, 1, 0, 0, 0, 0, 0};
    const struct {
        size_t width, height;
        unsigned format, channels;
    } row = {bytes, 0, 1, 1};
    uint64_t at = (uintptr_t)&one->at;
    switch (one->kind) {
    case APART: return take[APART](at, bytes, (uintptr_t)on_device, 0);
    case ARRAY: return take[ARRAY](at, (uintptr_t)&row, 0, 0);
    default: return take[one->kind](at, bytes, 0, 0);
    }
}

static void *hammer(void *seed) {
    unsigned random = (unsigned)(uintptr_t)seed;
    struct held held[HELD] = {{0, LINEAR}};
    wrong += set_current((uintptr_t)context, 0, 0, 0) != 0;
    for (unsigned i = 0; now_ns() < until_ns; i++) {
        struct held *one = &held[rand_r(&random) % HELD];
        if (one->at) {
            wrong += give[one->kind](one->at, 0, 0, 0) != 0;
            one->at = 0;
            continue;
        }
        one->kind = (enum kind)(rand_r(&random) % KINDS);
        int code = take_one(one, 1 + (uint64_t)rand_r(&random) % most);
        if (code) one->at = 0;
        granted += code == 0;
        refused += code == 2;
        wrong += code != 0 && code != 2;
        if (i % 16 == 0) wrong += synchronize(0, 0, 0, 0) != 0;
    }
    for (unsigned i = 0; i < HELD; i++) wrong += held[i].at && give[held[i].kind](held[i].at, 0, 0, 0) != 0;
    wrong += synchronize(0, 0, 0, 0) != 0;
    return NULL;
}

int main(int count, char **words) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (count != 4 || !driver) return 2;
    for (int kind = 0; kind < KINDS; kind++) {
        take[kind] = (any)dlsym(driver, takes[kind]);
        give[kind] = (any)dlsym(driver, gives[kind]);
    }
    set_current = (any)dlsym(driver, "cuCtxSetCurrent");
    synchronize = (any)dlsym(driver, "cuCtxSynchronize");
    if (((any)dlsym(driver, "cuInit"))(0, 0, 0, 0) ||
        ((any)dlsym(driver, "cuDevicePrimaryCtxRetain"))((uintptr_t)&context, 0, 0, 0))
        return 2;
    unsigned threads = (unsigned)atoi(words[1]);
    until_ns = now_ns() + (uint64_t)atoi(words[2]) * 1000000u;
    most = (uint64_t)atoll(words[3]);
    pthread_t running[THREADS_MOST];
    for (unsigned i = 0; i < threads && i < THREADS_MOST; i++)
        pthread_create(&running[i], NULL, hammer, (void *)(uintptr_t)((unsigned)getpid() * THREADS_MOST + i));
    for (unsigned i = 0; i < threads && i < THREADS_MOST; i++) pthread_join(running[i], NULL);
    printf("granted %u refused %u wrong %u\n", (unsigned)granted, (unsigned)refused, (unsigned)wrong);
    return wrong != 0;
}
