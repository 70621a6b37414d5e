/*
 * linear_race THREADS MILLISECONDS MOST: threads that take memory up to MOST bytes a piece and give it back, by the
 * library that stands before this program. Holds nothing at its end; 1 where the driver and the library disagree.
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

typedef int (*allocate)(unsigned long long *, size_t);
typedef int (*release)(unsigned long long);
typedef int (*start)(unsigned);
typedef int (*retain)(void **, int);
typedef int (*make_current)(void *);

static allocate take;
static release give;
static make_current set_current;
static void *context;
static uint64_t until_ns, most;
static atomic_uint granted, refused, wrong;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *hammer(void *seed)
{
    unsigned random = (unsigned)(uintptr_t)seed;
    unsigned long long held[HELD] = {0};
    wrong += set_current(context) != 0;
    for (unsigned i = 0; now_ns() < until_ns; i++) {
        unsigned long long *one = &held[rand_r(&random) % HELD];
        if (*one) {
            wrong += give(*one) != 0;
            *one = 0;
            continue;
        }
        int code = take(one, 1 + (size_t)rand_r(&random) % most);
        granted += code == 0;
        refused += code == 2;
        wrong += code != 0 && code != 2;
    }
    for (unsigned i = 0; i < HELD; i++)
        wrong += held[i] && give(held[i]) != 0;
    return NULL;
}

int main(int count, char **words)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return 2;
    take = (allocate)dlsym(driver, "cuMemAlloc_v2");
    give = (release)dlsym(driver, "cuMemFree_v2");
    if (count != 4 || !take || !give)
        return 2;
    set_current = (make_current)dlsym(driver, "cuCtxSetCurrent");
    if (((start)dlsym(driver, "cuInit"))(0) || ((retain)dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0))
        return 2;
    unsigned threads = (unsigned)atoi(words[1]);
    until_ns = now_ns() + (uint64_t)atoi(words[2]) * 1000000u;
    most = (uint64_t)atoll(words[3]);
    pthread_t running[THREADS_MOST];
    for (unsigned i = 0; i < threads && i < THREADS_MOST; i++)
        pthread_create(&running[i], NULL, hammer, (void *)(uintptr_t)((unsigned)getpid() * THREADS_MOST + i));
    for (unsigned i = 0; i < threads && i < THREADS_MOST; i++)
        pthread_join(running[i], NULL);
    printf("granted %u refused %u wrong %u\n", (unsigned)granted, (unsigned)refused, (unsigned)wrong);
    return wrong != 0;
}
