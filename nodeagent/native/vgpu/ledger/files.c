/* See files.h. */
#define _GNU_SOURCE
#include "ledger/files.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shared/create.h"
#include "ledger/lock.h"
#include "ledger/log.h"

#define PLACE "/run/nodeagent/vgpu"
#define PLACE_VARIABLE "NODEAGENT_VGPU_DIR"
#define FAIL_VARIABLE "NODEAGENT_VGPU_FAIL_MODE"
#define PATH_BYTES 4096
#define LOOK_AGAIN_NS UINT64_C(1000000000)
#define READ_TRIES 20
#define CREATE_TRIES 100
#define CREATE_WAIT_NS 1000000
#define NOTHING_READ UINT64_MAX

static struct lock looking;
static _Atomic(const struct vgpu_limits *) limits_map;
static _Atomic(struct vgpu_usage *) usage_map;
static _Atomic uint32_t status_now;
static _Atomic uint32_t reason_now;
static _Atomic uint32_t fail_status = VGPU_PASSING;
static _Atomic uint64_t read_sequence = NOTHING_READ;
static _Atomic uint64_t tried_sequence = NOTHING_READ;
static _Atomic uint64_t next_look_ns;
static _Atomic uint64_t memory_limits[VGPU_DEVICES];
static _Atomic uint64_t context_bytes[VGPU_DEVICES];
static _Atomic uint32_t core_limits[VGPU_DEVICES]; /* 0: none */
static atomic_bool soft[VGPU_DEVICES];
static atomic_bool limits_cores;
atomic_bool files_shared;
/* Only with the lock, or after a generation was seen whose slots these are: slots are added, never changed. */
static uint8_t uuids[VGPU_DEVICES][VGPU_UUID_BYTES];
static _Atomic uint32_t slots_known;

uint64_t files_now_ns(void) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool join(char path[PATH_BYTES], const char *place, const char *name) {
    size_t length = strlen(place), rest = strlen(name);
    if (length + rest + 2 > PATH_BYTES) return false;
    memcpy(path, place, length);
    path[length] = '/';
    memcpy(path + length + 1, name, rest + 1);
    return true;
}

/* The place that is mounted wins: a variable counts only where nothing is mounted. */
static bool name_file(char path[PATH_BYTES], const char *name) {
    const char *place = PLACE;
    if (access(PLACE "/limits", F_OK) != 0) {
        const char *given = secure_getenv(PLACE_VARIABLE);
        if (given && given[0] == '/') place = given;
    }
    if (strcmp(name, "usage") == 0) {
        bool is_shared = join(path, place, "shared") && access(path, F_OK) == 0;
        atomic_store(&files_shared, is_shared);
        name = is_shared ? "own/usage" : name;
    }
    return join(path, place, name);
}

int files_open(const char *name, bool writable) {
    char path[PATH_BYTES];
    if (!name_file(path, name)) return -1;
    return open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* The first `bytes` of a file in memory. NULL, and why in *found: -1 not there, else its size. */
static void *map_file(const char *name, size_t bytes, bool writable, off_t *found) {
    *found = -1;
    int file = files_open(name, writable);
    if (file < 0) return NULL;
    *found = lseek(file, 0, SEEK_END);
    void *map = MAP_FAILED;
    if (*found >= (off_t)bytes) map = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file, 0);
    close(file);
    return map == MAP_FAILED ? NULL : map;
}

static enum vgpu_status fail_by_variable(void) {
    const char *said = secure_getenv(FAIL_VARIABLE);
    return said && strcmp(said, "refuse") == 0 ? VGPU_REFUSING : VGPU_PASSING;
}

/* Its head keeps its place in every version, so the limits file says what to do even where the rest is not understood. */
static enum vgpu_status fail_by_file(const struct vgpu_limits_header *header) {
    if (header->magic == VGPU_LIMITS_MAGIC && header->fail_mode <= VGPU_REFUSE)
        return header->fail_mode == VGPU_REFUSE ? VGPU_REFUSING : VGPU_PASSING;
    return fail_by_variable();
}

static enum vgpu_reason judge_limits(const struct vgpu_limits *copy) {
    const struct vgpu_limits_header *header = &copy->header;
    if (header->magic != VGPU_LIMITS_MAGIC) return VGPU_LIMITS_DAMAGED;
    if (header->version != VGPU_VERSION) return header->version < VGPU_VERSION ? VGPU_LIMITS_OLDER : VGPU_LIMITS_NEWER;
    if (header->header_bytes != sizeof *header || header->slot_bytes != sizeof copy->limits[0])
        return VGPU_LIMITS_DAMAGED;
    if (header->slots > VGPU_DEVICES || header->fail_mode > VGPU_REFUSE) return VGPU_LIMITS_DAMAGED;
    uint64_t sum = create_checksum(VGPU_CHECKSUM_START, header, offsetof(struct vgpu_limits_header, sequence));
    sum = create_checksum(sum, copy->limits, sizeof copy->limits);
    return sum == header->checksum ? VGPU_FINE : VGPU_LIMITS_DAMAGED;
}

/* A copy that nobody wrote while it was made; after some tries whatever there is, and then its checksum tells. */
static uint64_t copy_limits(const struct vgpu_limits *map, struct vgpu_limits *copy) {
    for (int left = READ_TRIES;; left--) {
        uint64_t before = atomic_load_explicit(&map->header.sequence, memory_order_acquire);
        memcpy(copy, map, sizeof *copy);
        atomic_thread_fence(memory_order_acquire);
        uint64_t after = atomic_load_explicit(&map->header.sequence, memory_order_relaxed);
        if (left == 0 || (before == after && before % 2 == 0))
            return before == after && before % 2 == 0 ? before : NOTHING_READ;
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
}

static void keep_limits(const struct vgpu_limits *copy, uint64_t sequence) {
    uint32_t known = atomic_load(&slots_known);
    bool any = false;
    for (uint32_t i = 0; i < copy->header.slots; i++) {
        const struct vgpu_limit *limit = &copy->limits[i];
        if (i >= known) memcpy(uuids[i], limit->uuid, VGPU_UUID_BYTES);
        atomic_store(&memory_limits[i], limit->flags & VGPU_LIMIT_MEMORY ? limit->memory_bytes : FILES_UNLIMITED);
        atomic_store(&context_bytes[i], limit->context_bytes);
        bool is_limited = limit->flags & VGPU_LIMIT_CORES && limit->core_percent > 0 && limit->core_percent < 100;
        atomic_store(&core_limits[i], is_limited ? limit->core_percent : 0);
        atomic_store(&soft[i], (limit->flags & VGPU_SOFT) != 0);
        any = any || is_limited;
    }
    atomic_store(&limits_cores, any);
    if (copy->header.slots > known) atomic_store(&slots_known, copy->header.slots);
    atomic_store(&fail_status, fail_by_file(&copy->header));
    atomic_store_explicit(&read_sequence, sequence, memory_order_release);
}

static enum vgpu_reason read_limits(void) {
    const struct vgpu_limits *map = atomic_load(&limits_map);
    off_t found = 0;
    if (!map) {
        map = map_file("limits", sizeof *map, false, &found);
        if (!map) {
            atomic_store(&fail_status, fail_by_variable());
            return found < 0 ? VGPU_LIMITS_MISSING : VGPU_LIMITS_DAMAGED;
        }
    }
    struct vgpu_limits copy;
    atomic_store(&tried_sequence, atomic_load(&map->header.sequence));
    uint64_t sequence = copy_limits(map, &copy);
    enum vgpu_reason reason = judge_limits(&copy);
    if (reason == VGPU_FINE && sequence == NOTHING_READ) reason = VGPU_LIMITS_DAMAGED;
    if (reason == VGPU_FINE) {
        keep_limits(&copy, sequence);
        atomic_store(&limits_map, map);
    } else {
        if (atomic_load(&read_sequence) == NOTHING_READ) atomic_store(&fail_status, fail_by_file(&copy.header));
        /* One that was never whole may be another file next time. */
        if (!atomic_load(&limits_map)) munmap((void *)map, sizeof *map);
    }
    return reason;
}

static bool open_usage(bool may_create) {
    if (atomic_load(&usage_map)) return true;
    off_t found;
    char path[PATH_BYTES];
    struct vgpu_usage *map = map_file("usage", sizeof *map, true, &found);
    bool may_make = !map && found < 0 && may_create && name_file(path, "usage") && files_is_shared();
    for (int left = CREATE_TRIES; may_make && !map && left > 0; left--) {
        may_make = !create_usage(path);
        map = map_file("usage", sizeof *map, true, &found);
        if (may_make && !map) nanosleep(&(struct timespec){0, CREATE_WAIT_NS}, NULL);
    }
    if (!map) return false;
    const struct vgpu_usage_header *header = &map->header;
    bool fine =
        header->magic == VGPU_USAGE_MAGIC && header->version == VGPU_VERSION &&
        header->header_bytes == sizeof *header && header->process_bytes == sizeof map->slots[0] &&
        header->processes == VGPU_PROCESSES && header->devices == VGPU_DEVICES &&
        header->checksum == create_checksum(VGPU_CHECKSUM_START, header, offsetof(struct vgpu_usage_header, checksum));
    if (fine) atomic_store(&usage_map, map);
    else munmap(map, sizeof *map);
    return fine;
}

/* In the usage file stays what happened, also when the process is gone. */
static void tell(enum vgpu_status before, enum vgpu_status now, enum vgpu_reason reason) {
    log_line("status %u, reason %u", (unsigned)now, (unsigned)reason);
    struct vgpu_usage *usage = atomic_load(&usage_map);
    if (!usage) return;
    if (reason != VGPU_FINE) atomic_store(&usage->header.last_reason, reason);
    if (now != before && now == VGPU_PASSING) atomic_fetch_add(&usage->header.passing_starts, 1);
    if (now != before && now == VGPU_REFUSING) atomic_fetch_add(&usage->header.refusing_starts, 1);
}

static void look_again(void) {
    bool usable = open_usage(true);
    enum vgpu_reason reason = read_limits();
    enum vgpu_status before = atomic_load(&status_now), now = VGPU_LIMITING;
    /* Limits that were whole once stay in force while the file is damaged. */
    if (atomic_load(&read_sequence) == NOTHING_READ) now = atomic_load(&fail_status);
    if (!usable) {
        reason = reason == VGPU_FINE ? VGPU_USAGE_UNUSABLE : reason;
        now = atomic_load(&fail_status);
    }
    atomic_store(&next_look_ns, files_now_ns() + LOOK_AGAIN_NS);
    if (before != now || atomic_load(&reason_now) != reason) tell(before, now, reason);
    atomic_store(&reason_now, reason);
    atomic_store(&status_now, now);
}

/* Whether the limits in force are those of the file, or it was found wanting as it lies there and not long ago. */
static bool is_current(enum vgpu_status status) {
    const struct vgpu_limits *map = atomic_load_explicit(&limits_map, memory_order_acquire);
    uint64_t sequence = map ? atomic_load_explicit(&map->header.sequence, memory_order_acquire) : NOTHING_READ;
    if (status == VGPU_LIMITING && map && sequence == atomic_load_explicit(&read_sequence, memory_order_acquire))
        return true;
    return status != VGPU_STARTING && atomic_load(&reason_now) != VGPU_FINE &&
           (!map || sequence == atomic_load(&tried_sequence)) && files_now_ns() < atomic_load(&next_look_ns);
}

enum vgpu_status files_look(void) {
    enum vgpu_status status = atomic_load_explicit(&status_now, memory_order_acquire);
    if (is_current(status)) return status;
    lock_take(&looking);
    status = atomic_load(&status_now);
    if (!is_current(status)) look_again();
    lock_give(&looking);
    return atomic_load(&status_now);
}

enum vgpu_reason files_reason(void) {
    return atomic_load(&reason_now);
}

enum vgpu_status files_fail_status(void) {
    return atomic_load(&fail_status);
}

unsigned files_find_slot(const uint8_t uuid[VGPU_UUID_BYTES]) {
    uint32_t known = atomic_load(&slots_known);
    for (unsigned i = 0; i < known; i++)
        if (memcmp(uuids[i], uuid, VGPU_UUID_BYTES) == 0) return i;
    return FILES_NO_SLOT;
}

uint64_t files_memory_limit(unsigned slot) {
    return atomic_load_explicit(&memory_limits[slot], memory_order_acquire);
}

uint32_t files_core_limit(unsigned slot) {
    return atomic_load_explicit(&core_limits[slot], memory_order_acquire);
}

bool files_is_soft(unsigned slot) {
    return atomic_load_explicit(&soft[slot], memory_order_relaxed);
}

bool files_limits_cores(void) {
    return atomic_load_explicit(&limits_cores, memory_order_relaxed);
}

uint64_t files_measured(unsigned slot) {
    const struct vgpu_limits *map = atomic_load_explicit(&limits_map, memory_order_acquire);
    return map ? atomic_load_explicit(&map->measured[slot], memory_order_relaxed) : 0;
}

uint64_t files_context_bytes(unsigned slot) {
    return atomic_load_explicit(&context_bytes[slot], memory_order_acquire);
}

uint64_t files_generation(void) {
    return atomic_load(&slots_known);
}

struct vgpu_usage *files_usage(void) {
    return atomic_load_explicit(&usage_map, memory_order_acquire);
}

struct vgpu_usage *files_open_usage(void) {
    lock_take(&looking);
    open_usage(false);
    lock_give(&looking);
    return files_usage();
}

void files_after_fork(void) {
    atomic_store(&looking.held, 0);
}
