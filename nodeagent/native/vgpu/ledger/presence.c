/* See presence.h. */
#define _GNU_SOURCE
#include "ledger/presence.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ledger/files.h"

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

static _Atomic(void *) held;
static _Atomic unsigned held_slot;

/* Of the open file, not of the process: a descriptor of the same file that anybody closes takes no lock away. */
static int take_lock(int file, unsigned slot) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};
    return fcntl(file, F_OFD_SETLK, &lock);
}

enum presence presence_hold(unsigned slot) {
    if (atomic_load(&held) && atomic_load(&held_slot) == slot) return PRESENCE_HELD;
    int kept = errno, file = files_open("usage", true);
    enum presence presence = PRESENCE_UNKNOWN;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED && madvise(page, 1, MADV_DONTFORK) == 0) {
        if (take_lock(file, slot) == 0) presence = PRESENCE_HELD;
        else if (errno == EAGAIN || errno == EACCES) presence = PRESENCE_TAKEN;
    }
    if (file >= 0) close(file);
    if (presence == PRESENCE_HELD) {
        presence_drop();
        atomic_store(&held_slot, slot);
        atomic_store(&held, page);
    } else if (page != MAP_FAILED) munmap(page, 1);
    errno = kept;
    return presence;
}

void presence_drop(void) {
    void *page = atomic_exchange(&held, NULL);
    if (page) munmap(page, 1);
}

int presence_try(unsigned slot) {
    int kept = errno, file = files_open("usage", true);
    if (file >= 0 && take_lock(file, slot) != 0) {
        close(file);
        file = -1;
    }
    errno = kept;
    return file;
}

/* The parent's mapping is not there, and its address may be anything by now. */
void presence_after_fork(void) {
    atomic_store(&held, NULL);
}
