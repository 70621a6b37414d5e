/* See account.h. */
#define _GNU_SOURCE
#include "shared/account.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../include/vgpu_files.h"
#include "ledger/files.h"
#include "ledger/lock.h"

#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

#define DESCRIPTOR_FROM 100 /* the low numbers are those that programs reckon with */
#define LOOKS 1024          /* whoever takes more locks than all processes need is not added up, but has it all */
#define DUE_TRIES 20
#define DUE_WAIT_NS 50000

enum kind { PENDING, USED };

/* All of it only with the lock, but for the question whether there is a descriptor. */
static struct lock changing;
static atomic_int file = -1;
static dev_t file_device;
static ino_t file_number;
static void *held;
static unsigned number;
static uint64_t used[VGPU_DEVICES];
static bool alone[VGPU_DEVICES]; /* whether nobody else had anything when that was looked at last */

static uint64_t find_place(unsigned device, enum kind kind) {
    return VGPU_SHARED_MEMORY + device * VGPU_SHARED_DEVICE + kind * VGPU_SHARED_USED;
}

static bool change_lock(int descriptor, short type, uint64_t start, uint64_t length) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)length};
    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

static bool change_own(short type, unsigned device, enum kind kind, uint64_t from, uint64_t length) {
    return change_lock(file, type, find_place(device, kind) + number * VGPU_SHARED_BYTES + from, length);
}

/* The kernel's own call: fstat is a symbol of the C library from 2.33 on alone, and the image may have an older one. */
static bool read_status(int descriptor, struct stat *status) {
    return syscall(SYS_fstat, descriptor, status) == 0;
}

/* A program may have closed it, and have another file by its number. */
static bool is_ours(int descriptor) {
    struct stat status;
    return descriptor >= 0 && read_status(descriptor, &status) && status.st_dev == file_device &&
           status.st_ino == file_number;
}

/* Where the program closed the former descriptor, all is shown once more; what that had shown stays until then. */
static bool show_all(void) {
    bool shown = true;
    for (unsigned device = 0; device < VGPU_DEVICES && shown; device++)
        shown = used[device] == 0 || change_own(F_WRLCK, device, USED, 0, used[device]);
    for (unsigned device = 0; device < VGPU_DEVICES && !shown; device++)
        change_own(F_UNLCK, device, USED, 0, VGPU_SHARED_BYTES);
    return shown;
}

/* Passed over are those that others have, and those where somebody holds what is no container's to hold. */
static bool find_number(void) {
    for (number = 0; number < VGPU_PROCESSES; number++) {
        bool free = change_lock(file, F_WRLCK, VGPU_SHARED_PROCESS + number, 1);
        if (free && show_all()) return true;
        if (free) change_lock(file, F_UNLCK, VGPU_SHARED_PROCESS + number, 1);
        else if (errno != EAGAIN && errno != EACCES) break;
    }
    return false;
}

/* A descriptor of the file; -1 where there is none. */
static int open_high(void) {
    int opened = files_open("shared", true);
    int descriptor = opened < 0 ? -1 : fcntl(opened, F_DUPFD_CLOEXEC, DESCRIPTOR_FROM);
    if (descriptor < 0) return opened;
    close(opened);
    return descriptor;
}

static bool attach(void) {
    struct stat status;
    if (is_ours(file)) return true;
    int opened = open_high();
    void *page = opened < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, opened, 0);
    file = opened;
    if (page != MAP_FAILED && madvise(page, 1, MADV_DONTFORK) == 0 && read_status(opened, &status) && find_number()) {
        if (held) munmap(held, 1);
        held = page;
        file_device = status.st_dev;
        file_number = status.st_ino;
        return true;
    }
    file = -1;
    if (page != MAP_FAILED) munmap(page, 1);
    if (opened >= 0) close(opened);
    return false;
}

bool shared_attach(void) {
    if (atomic_load_explicit(&file, memory_order_acquire) >= 0) return true;
    int kept = errno;
    lock_take(&changing);
    bool attached = attach();
    lock_give(&changing);
    errno = kept;
    return attached;
}

struct gap {
    uint64_t start, end;
};

/* Whoever else has a lock there: which part of the gap. False where nobody has. */
static bool find_locked(struct gap gap, struct gap *locked) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)gap.start, .l_len = (off_t)(gap.end - gap.start)};
    *locked = gap;
    if (fcntl(file, F_OFD_GETLK, &lock) != 0) return true;
    if (lock.l_type == F_UNLCK) return false;
    uint64_t start = (uint64_t)lock.l_start, end = lock.l_len ? start + (uint64_t)lock.l_len : gap.end;
    *locked = (struct gap){start > gap.start ? start : gap.start, end < gap.end ? end : gap.end};
    return true;
}

/*
 * How many bytes others have locked. The kernel tells any one lock of many: what is before it and behind it is asked for by
 * itself, so that one that has grown meanwhile is counted once, and none is hidden by another.
 */
static uint64_t add_up(unsigned device, enum kind kind) {
    uint64_t start = find_place(device, kind), sum = 0;
    struct gap gaps[LOOKS + 2], locked;
    unsigned left = 0, looks = 0;
    gaps[left++] = (struct gap){start, start + VGPU_SHARED_USED};
    while (left > 0) {
        struct gap gap = gaps[--left];
        if (gap.start >= gap.end) continue;
        if (++looks > LOOKS) return VGPU_SHARED_USED;
        if (!find_locked(gap, &locked)) continue;
        sum += locked.end - locked.start;
        gaps[left++] = (struct gap){locked.end, gap.end};
        gaps[left++] = (struct gap){gap.start, locked.start};
    }
    return sum;
}

static bool is_alone(unsigned device) {
    uint64_t start = find_place(device, PENDING);
    struct gap locked;
    alone[device] = !find_locked((struct gap){start, start + VGPU_SHARED_DEVICE}, &locked);
    return alone[device];
}

/* Whether it fits, decided by whoever was alone and is: with half of the calls. */
static bool try_alone(unsigned device, uint64_t bytes, uint64_t limit) {
    uint64_t own = used[device];
    if (!alone[device] || own + bytes > limit || !change_own(F_WRLCK, device, USED, own, bytes)) return false;
    if (is_alone(device)) used[device] = own + bytes;
    else change_own(F_UNLCK, device, USED, own, bytes);
    return alone[device];
}

/* Alone, that is one question. A reservation moves from pending to used, so it is looked for in this order. */
static void add_up_both(unsigned device, uint64_t *pending, uint64_t *decided) {
    *pending = *decided = 0;
    if (!is_alone(device)) {
        *pending = add_up(device, PENDING);
        *decided = add_up(device, USED);
    }
}

static enum attempt try_attached(unsigned device, uint64_t bytes, uint64_t limit, uint64_t *decided) {
    uint64_t own = used[device], pending, others;
    if (bytes > VGPU_SHARED_BYTES - own) return TOO_MUCH;
    if (try_alone(device, bytes, limit)) return FITS;
    /* Refused where somebody holds what is no container's to hold. */
    if (!change_own(F_WRLCK, device, PENDING, 0, bytes)) return CONTESTED;
    add_up_both(device, &pending, &others);
    *decided = own + others;
    bool fits = *decided + bytes <= limit, fits_beside = fits && *decided + bytes + pending <= limit;
    bool granted = fits_beside && change_own(F_WRLCK, device, USED, own, bytes);
    if (granted) used[device] = own + bytes;
    change_own(F_UNLCK, device, PENDING, 0, bytes);
    return granted ? FITS : fits ? CONTESTED : TOO_MUCH;
}

enum attempt shared_try(unsigned device, uint64_t bytes, uint64_t limit, uint64_t *decided) {
    int kept = errno;
    *decided = UINT64_MAX;
    lock_take(&changing);
    enum attempt result = bytes == 0 ? FITS : attach() ? try_attached(device, bytes, limit, decided) : TOO_MUCH;
    lock_give(&changing);
    errno = kept;
    return result;
}

void shared_release(unsigned device, uint64_t bytes) {
    int kept = errno;
    lock_take(&changing);
    bytes = bytes < used[device] ? bytes : used[device];
    used[device] -= bytes;
    if (bytes > 0 && attach()) change_own(F_UNLCK, device, USED, used[device], bytes);
    lock_give(&changing);
    errno = kept;
}

uint64_t shared_used(unsigned device) {
    int kept = errno;
    lock_take(&changing);
    uint64_t sum = used[device] + (attach() ? add_up(device, USED) : 0);
    lock_give(&changing);
    errno = kept;
    return sum;
}

/* Who holds it for long means harm, or is stopped: to wait for it is worse than to lose what it writes. */
static bool lock_due(unsigned device) {
    for (int left = DUE_TRIES; left > 0; left--) {
        if (change_lock(file, F_WRLCK, VGPU_SHARED_DUE + device, 1)) return true;
        nanosleep(&(struct timespec){0, DUE_WAIT_NS}, NULL);
    }
    return false;
}

bool shared_change_due(unsigned device, due_change *change, uint64_t amount, uint64_t now, uint64_t *due) {
    int kept = errno;
    off_t at = (off_t)(device * sizeof *due);
    lock_take(&changing);
    bool changed = attach();
    if (changed) {
        bool locked = lock_due(device);
        /* Cut off by somebody: nobody has paid for anything. */
        if (pread(file, due, sizeof *due, at) != (ssize_t)sizeof *due) *due = 0;
        uint64_t next = change(*due, amount, now);
        changed = pwrite(file, &next, sizeof next, at) == (ssize_t)sizeof next;
        if (locked) change_lock(file, F_UNLCK, VGPU_SHARED_DUE + device, 1);
    }
    lock_give(&changing);
    errno = kept;
    return changed;
}

/* The parent's locks are the parent's alone: they must not outlive it because a child has its descriptor. */
void shared_after_fork(void) {
    int former = file;
    if (is_ours(former)) close(former);
    file = -1;
    held = NULL;
    for (unsigned device = 0; device < VGPU_DEVICES; device++) used[device] = 0;
    atomic_store(&changing.held, 0);
}
