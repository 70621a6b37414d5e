/*
 * The judge: what each process really has of each device, and the most that all had together. It shares no code and no
 * file with what it judges, and takes a lock for every change.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

#define PROCESSES 128

/* `tests/fakes/cuda/driver.py` reads these. */
struct process {
    uint64_t pid;
    uint64_t start;
    uint64_t used[DEVICES_MOST];
    uint64_t busy_ns;
};
struct account {
    uint64_t most[DEVICES_MOST];
    struct process processes[PROCESSES];
};

static pthread_mutex_t within = PTHREAD_MUTEX_INITIALIZER;
static struct account alone, *account = &alone;
static struct process *own = alone.processes;
static int file = -1;

static void lock(void) {
    pthread_mutex_lock(&within);
    if (file >= 0)
        while (flock(file, LOCK_EX) != 0 && errno == EINTR);
}

static void unlock(void) {
    if (file >= 0) flock(file, LOCK_UN);
    pthread_mutex_unlock(&within);
}

/* 0 for one that is gone, or has ended with all its threads and was not waited for. */
static uint64_t read_start(uint64_t pid) {
    char path[64], line[1024], state = 'X';
    unsigned long long start = 0;
    int threads = 0;
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    FILE *stat = fopen(path, "re");
    if (!stat) return 0;
    char *at = fgets(line, sizeof line, stat) ? strrchr(line, ')') : NULL;
    fclose(stat);
    if (!at || sscanf(at, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu", &state,
                      &threads, &start) != 3)
        return 0;
    return (state == 'Z' || state == 'X') && threads <= 1 ? 0 : start;
}

static void drop_dead(void) {
    for (int i = 0; i < PROCESSES; i++) {
        struct process *process = &account->processes[i];
        if (process->pid && process != own && read_start(process->pid) != process->start)
            memset(process, 0, sizeof *process);
    }
}

static uint64_t add_up(device device) {
    uint64_t sum = 0;
    for (int i = 0; i < PROCESSES; i++) sum += account->processes[i].used[device];
    return sum;
}

static struct process *find_free(void) {
    for (int i = 0; i < PROCESSES; i++)
        if (!account->processes[i].pid) return &account->processes[i];
    return NULL;
}

result account_open(void) {
    const char *path = getenv("FAKE_CUDA_ACCOUNT");
    if (!path || file >= 0) return SUCCESS;
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || ftruncate(file, sizeof *account) != 0) return NO_DEVICE;
    account = mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (account == MAP_FAILED) return NO_DEVICE;
    lock();
    drop_dead();
    own = find_free();
    if (own) *own = (struct process){(uint64_t)getpid(), read_start((uint64_t)getpid()), {0}, 0};
    unlock();
    return own ? SUCCESS : NO_DEVICE;
}

result account_charge(device device, uint64_t bytes) {
    lock();
    uint64_t total = fake_total(device), sum = add_up(device);
    if (bytes > total || sum > total - bytes || sum + bytes > account->most[device]) {
        drop_dead();
        sum = add_up(device);
    }
    result verdict = bytes > total || sum > total - bytes ? OUT_OF_MEMORY : SUCCESS;
    if (verdict == SUCCESS) {
        own->used[device] += bytes;
        if (sum + bytes > account->most[device]) account->most[device] = sum + bytes;
    }
    unlock();
    return verdict;
}

void account_credit(device device, uint64_t bytes) {
    lock();
    own->used[device] -= bytes;
    unlock();
}

void account_busy(uint64_t nanoseconds) {
    __atomic_fetch_add(&own->busy_ns, nanoseconds, __ATOMIC_RELAXED);
}

uint64_t account_used(device device) {
    lock();
    drop_dead();
    uint64_t sum = add_up(device);
    unlock();
    return sum;
}
