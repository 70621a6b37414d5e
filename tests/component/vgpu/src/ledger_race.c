/*
 * The ledger alone, without the driver's calls between its steps, so that races are as narrow as they can be.
 *
 *   ledger_race JUDGE THREADS MILLISECONDS LIMIT   reserves and releases at random; 1 when the judge ever counts too much
 *   ledger_race hold BYTES                         reserves, says what came of it, and waits to be killed
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ledger/ledger.h"

#define SLOT 0

static _Atomic uint64_t *judge; /* counted, and passed how often */
static uint64_t limit, until_ns;
static _Atomic uint64_t granted, denied;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *hammer(void *seed) {
    unsigned random = (unsigned)(uintptr_t)seed;
    while (now_ns() < until_ns) {
        uint64_t bytes = 1 + (uint64_t)rand_r(&random) % (limit / 2);
        if (ledger_reserve(SLOT, bytes) != LEDGER_GRANTED) {
            denied++;
            continue;
        }
        granted++;
        if (atomic_fetch_add(&judge[0], bytes) + bytes > limit) judge[1]++;
        atomic_fetch_sub(&judge[0], bytes);
        ledger_release(SLOT, bytes);
    }
    return NULL;
}

static int race(char **words) {
    int file = open(words[0], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, 4096) != 0) return 2;
    judge = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (judge == MAP_FAILED) return 2;
    size_t count = strtoul(words[1], NULL, 10);
    until_ns = now_ns() + strtoull(words[2], NULL, 10) * 1000000u;
    limit = strtoull(words[3], NULL, 10);
    pthread_t threads[256];
    for (size_t i = 0; i < count && i < 256; i++)
        if (pthread_create(&threads[i], NULL, hammer, (void *)(uintptr_t)((size_t)getpid() * 256 + i)) != 0) return 2;
    for (size_t i = 0; i < count && i < 256; i++) pthread_join(threads[i], NULL);
    printf("granted %llu denied %llu passed %llu\n", (unsigned long long)granted, (unsigned long long)denied,
           (unsigned long long)judge[1]);
    return judge[1] != 0;
}

int main(int count, char **words) {
    if (count == 5) return race(words + 1);
    if (count != 3 || strcmp(words[1], "hold") != 0) return 2;
    enum verdict verdict = ledger_reserve(SLOT, strtoull(words[2], NULL, 10));
    printf("%s\n", verdict == LEDGER_GRANTED ? "granted" : verdict == LEDGER_DENIED ? "denied" : "uncounted");
    fflush(stdout);
    pause();
    return 0;
}
