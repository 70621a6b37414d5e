/* See presence.h. */
#define _GNU_SOURCE
#include "ledger/presence.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "ledger/files.h"

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif
#define OUT_OF_THE_WAY 256 /* programs count on the first descriptors that are free */

static _Atomic int file = -1;

/* Once for each process, by the same name as the mapping; whoever is called has the lock of those who look for a slot. */
static int find_file(void)
{
    int known = atomic_load(&file);
    if (known >= 0)
        return known;
    int opened = files_open("usage", true);
    int moved = opened < 0 ? -1 : fcntl(opened, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    if (moved >= 0) {
        close(opened);
        opened = moved;
    }
    atomic_store(&file, opened);
    return opened;
}

static int set_lock(unsigned slot, short type)
{
    /* Of the open file, not of the process: any other descriptor of the file may be closed. */
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};
    int descriptor = find_file();
    return descriptor < 0 ? -1 : fcntl(descriptor, F_OFD_SETLK, &lock);
}

enum presence presence_hold(unsigned slot)
{
    int kept = errno;
    enum presence presence = PRESENCE_HELD;
    if (set_lock(slot, F_WRLCK) != 0)
        presence = errno == EAGAIN || errno == EACCES ? PRESENCE_TAKEN : PRESENCE_UNKNOWN;
    errno = kept;
    return presence;
}

void presence_drop(unsigned slot)
{
    int kept = errno;
    set_lock(slot, F_UNLCK);
    errno = kept;
}

/* What was inherited is the parent's: closed with exec, and never used here. */
void presence_after_fork(void)
{
    atomic_store(&file, -1);
}
