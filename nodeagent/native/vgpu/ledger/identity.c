/* See identity.h. */
#define _GNU_SOURCE
#include "ledger/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../include/vgpu_files.h"

#define LINE_BYTES 1024

struct life {
    char state;
    uint64_t threads;
    uint64_t start;
};

static uint64_t parse_number(const char **text) {
    uint64_t value = 0;
    while (**text >= '0' && **text <= '9') value = value * 10 + (uint64_t)(*(*text)++ - '0');
    return value;
}

/* Line `stat` of /proc: the name may hold anything, so fields are counted from the last bracket. */
static bool read_life(const char *path, struct life *life) {
    char line[LINE_BYTES];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t length = read(file, line, sizeof line - 1);
    close(file);
    if (length <= 0) return false;
    line[length] = '\0';
    const char *at = strrchr(line, ')');
    if (!at || at[1] != ' ') return false;
    at += 2;
    life->state = *at;
    for (int field = 3; field < 22; field++) {
        if (field == 20) life->threads = parse_number(&(const char *){at});
        at = strchr(at, ' ');
        if (!at) return false;
        at++;
    }
    life->start = parse_number(&at);
    return true;
}

/* Read once: an emulator of another processor says another start time to each thread. */
static _Atomic uint64_t own;

uint64_t identity_own(void) {
    struct life life;
    uint64_t known = atomic_load_explicit(&own, memory_order_relaxed);
    if (known) return known;
    uint64_t start = read_life("/proc/self/stat", &life) ? life.start & VGPU_OWNER_START_MASK : 0;
    known = ((uint64_t)getpid() & VGPU_OWNER_PID_MASK) << VGPU_OWNER_PID_SHIFT | start;
    atomic_store_explicit(&own, known, memory_order_relaxed);
    return known;
}

uint64_t identity_namespace(void) {
    char target[64];
    ssize_t length = readlink("/proc/self/ns/pid", target, sizeof target - 1);
    if (length <= 5) return 0;
    target[length] = '\0';
    const char *at = strchr(target, '[');
    if (!at) return 0;
    at++;
    return parse_number(&at);
}

/* In a namespace that has no /proc of its own, the one that is there tells of other processes by these numbers. */
static bool is_proc_ours(void) {
    char target[32];
    ssize_t length = readlink("/proc/self", target, sizeof target - 1);
    if (length <= 0) return false;
    target[length] = '\0';
    const char *at = target;
    return parse_number(&at) == (uint64_t)getpid();
}

bool identity_is_alive(uint64_t identity) {
    uint64_t start = identity & VGPU_OWNER_START_MASK;
    int pid = (int)(identity >> VGPU_OWNER_PID_SHIFT & VGPU_OWNER_PID_MASK);
    int kept = errno;
    bool gone = pid == 0 || (kill(pid, 0) != 0 && errno == ESRCH);
    if (!gone) {
        char path[32];
        struct life life;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        /* Unreadable means nothing: /proc may hide the processes of others. */
        if (is_proc_ours() && read_life(path, &life))
            gone = (start && (life.start & VGPU_OWNER_START_MASK) != start) ||
                   ((life.state == 'Z' || life.state == 'X') && life.threads <= 1);
    }
    errno = kept;
    return !gone;
}

void identity_after_fork(void) {
    atomic_store(&own, 0);
}
