/* Whole files, read within a bound and replaced by rename. */
#include "shim.h"

#include <asm/errno.h>
#include <linux/fcntl.h>

enum { OTHERS_WRITE = 022, PERMISSIONS = 07777, PATH_LIMIT = 4096 };

static long read_open(int file, size_t limit, bool only_roots, bool only_head, Text *into) {
    Status status;
    long answer = sys_status(file, "", true, &status);
    if (answer < 0) return answer;
    if (!is_kind(status.mode, REGULAR)) return -EACCES;
    if (only_roots && ((status.uid && status.uid != sys_user()) || status.mode & OTHERS_WRITE)) return -EACCES;
    if (status.size > limit && !only_head) return -EFBIG;
    into->room = (status.size < limit ? (size_t)status.size : limit) + 4096;
    into->at = take(into->room);
    into->size = 0;
    for (;;) {
        if (into->room - into->size < 2) {
            into->at = grow(into->at, into->size, into->room, into->room * 2);
            into->room *= 2;
        }
        long got = sys_read(file, into->at + into->size, into->room - into->size - 1);
        if (got < 0) return got;
        if (got == 0) break;
        into->size += (size_t)got;
        if (into->size > limit && !only_head) return -EFBIG;
        if (into->size >= limit && only_head) break;
    }
    into->at[into->size] = 0;
    return 0;
}

static long read_path(const char *path, size_t limit, bool only_roots, bool only_head, Text *into) {
    /* Non-blocking, so that a pipe in place of the file cannot hang the container's creation. */
    long file = sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (only_roots ? O_NOFOLLOW : 0), 0);
    if (file < 0) return file;
    long answer = read_open((int)file, limit, only_roots, only_head, into);
    sys_close((int)file);
    return answer;
}

long read_file(const char *path, size_t limit, bool only_roots, Text *into) {
    return read_path(path, limit, only_roots, false, into);
}

long read_head(const char *path, size_t limit, Text *into) {
    return read_path(path, limit, true, true, into);
}

/* Where a symbolic link leads, so that the link stays. */
static const char *follow(const char *path) {
    for (int steps = 0; steps < 40; steps++) {
        char target[PATH_LIMIT];
        long size = sys_readlink(path, target, sizeof target);
        if (size <= 0 || (size_t)size == sizeof target) return path;
        Text next = {0};
        if (target[0] != '/') text_add(&next, path, (size_t)(base_name(path) - path));
        text_add(&next, target, (size_t)size);
        path = text_end(&next);
    }
    return path;
}

static const char *name_temporary(const char *path) {
    Text name = {0};
    text_add(&name, path, (size_t)(base_name(path) - path));
    text_say(&name, ".");
    text_say(&name, base_name(path));
    text_say(&name, ".");
    text_number(&name, sys_process(), 10);
    text_say(&name, ".nodeagent");
    return text_end(&name);
}

static long fill(int file, const Text *content, const Status *old) {
    for (size_t done = 0; done < content->size;) {
        long wrote = sys_write(file, content->at + done, content->size - done);
        if (wrote < 0) return wrote;
        done += (size_t)wrote;
    }
    Status fresh;
    long answer = sys_status(file, "", true, &fresh);
    if (answer == 0 && (fresh.uid != old->uid || fresh.gid != old->gid)) answer = sys_own(file, old->uid, old->gid);
    return answer < 0 ? answer : sys_mode(file, old->mode & PERMISSIONS);
}

void replace_file(const char *path, const Text *content) {
    const char *target = follow(path), *temporary = name_temporary(target);
    Status old;
    long answer = sys_status(-1, target, true, &old);
    if (answer < 0) fail("cannot look at ", target, ": ", sys_error(answer));
    /* One that was killed while it wrote may have left its file; our process number makes it ours. */
    sys_unlink(temporary);
    long file = sys_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) fail("cannot write ", temporary, ": ", sys_error(file));
    answer = fill((int)file, content, &old);
    long closed = sys_close((int)file);
    if (answer == 0) answer = closed;
    if (answer == 0) answer = sys_rename(temporary, target);
    if (answer < 0) {
        sys_unlink(temporary);
        fail("cannot replace ", target, ": ", sys_error(answer));
    }
}
