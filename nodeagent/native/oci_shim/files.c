/* Whole files, read within a bound and replaced by rename; longer ones, looked through for words. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PERMISSIONS = 07777, WORD_LIMIT = 256, BLOCK_SIZE = 1 << 16 };

static int read_open(int file, size_t limit, bool only_roots, bool only_head, Text *into) {
    struct stat status;
    if (fstat(file, &status) < 0) return errno;
    if (!S_ISREG(status.st_mode)) return EACCES;
    if (only_roots && status.st_uid && status.st_uid != geteuid()) return EACCES;
    if (only_roots && status.st_mode & (S_IWGRP | S_IWOTH)) return EACCES;
    size_t size = (size_t)status.st_size;
    if (size > limit && !only_head) return EFBIG;
    into->room = (size < limit ? size : limit) + 4096;
    into->at = take(into->room);
    into->size = 0;
    for (;;) {
        if (into->room - into->size < 2) {
            into->at = grow(into->at, into->room, into->room * 2);
            into->room *= 2;
        }
        ssize_t got = read(file, into->at + into->size, into->room - into->size - 1);
        if (got < 0) return errno;
        if (got == 0) break;
        into->size += (size_t)got;
        if (into->size > limit && !only_head) return EFBIG;
        if (into->size >= limit && only_head) break;
    }
    into->at[into->size] = 0;
    return 0;
}

static int read_path(const char *path, size_t limit, bool only_roots, bool only_head, Text *into) {
    /* Non-blocking, so that a pipe in place of the file cannot hang the container's creation. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (only_roots ? O_NOFOLLOW : 0));
    if (file < 0) return errno;
    int error = read_open(file, limit, only_roots, only_head, into);
    close(file);
    return error;
}

int read_file(const char *path, size_t limit, bool only_roots, Text *into) {
    return read_path(path, limit, only_roots, false, into);
}

int read_head(const char *path, size_t limit, Text *into) {
    return read_path(path, limit, true, true, into);
}

static bool mentions(const char *at, const Names *words) {
    for (size_t each = 0; each < words->count; each++) {
        const char *word = words->at[each];
        size_t size = strlen(word);
        if (*at == *word && !memcmp(at, word, size < WORD_LIMIT ? size : WORD_LIMIT)) return true;
    }
    return false;
}

bool file_mentions(const char *path, const Names *words) {
    char *block = take(BLOCK_SIZE + WORD_LIMIT);
    size_t kept = 0;
    ssize_t got = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool found = false;
    while (file >= 0 && !found && (got = read(file, block + kept, BLOCK_SIZE - kept)) > 0) {
        size_t size = kept + (size_t)got;
        /* Behind the text there are zeros, so that no word is read beyond it. */
        memset(block + size, 0, WORD_LIMIT);
        for (size_t at = 0; at < size && !found; at++) found = mentions(block + at, words);
        kept = size < WORD_LIMIT ? size : WORD_LIMIT;
        memmove(block, block + size - kept, kept);
    }
    if (file >= 0) close(file);
    return found || file < 0 || got < 0;
}

static int fill(int file, const Text *content, const struct stat *old) {
    for (size_t done = 0; done < content->size;) {
        ssize_t wrote = write(file, content->at + done, content->size - done);
        if (wrote < 0) return errno;
        done += (size_t)wrote;
    }
    struct stat fresh;
    if (fstat(file, &fresh) < 0) return errno;
    bool is_owned = fresh.st_uid == old->st_uid && fresh.st_gid == old->st_gid;
    if (!is_owned && fchown(file, old->st_uid, old->st_gid) < 0) return errno;
    return fchmod(file, old->st_mode & PERMISSIONS) < 0 ? errno : 0;
}

const char *replace_file(const char *path, const Text *content) {
    const char *name = base_name(path);
    const char *temporary = compose("%.*s.%s.%d.nodeagent", (int)(name - path), path, name, (int)getpid());
    struct stat old;
    if (stat(path, &old) < 0) return compose("cannot look at %s: %s", path, describe_error(errno));
    /* One that was killed while it wrote may have left its file; our process number makes it ours. */
    unlink(temporary);
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return compose("cannot write %s: %s", temporary, describe_error(errno));
    int error = fill(file, content, &old);
    if (close(file) < 0 && !error) error = errno;
    if (!error && rename(temporary, path) < 0) error = errno;
    if (!error) return NULL;
    unlink(temporary);
    return compose("cannot replace %s: %s", path, describe_error(error));
}
