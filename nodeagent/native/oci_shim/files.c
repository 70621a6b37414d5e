/* Whole files, read within a bound and replaced by rename; longer ones, looked through for words. */
#include "shim.h"

#include <asm/errno.h>
#include <linux/fcntl.h>

#include <string.h>

enum { OTHERS_WRITE = 022, PERMISSIONS = 07777, WORD_LIMIT = 256, BLOCK_SIZE = 1 << 16 };

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
    long got = 0, file = sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    bool found = false;
    while (file >= 0 && !found && (got = sys_read((int)file, block + kept, BLOCK_SIZE - kept)) > 0) {
        size_t size = kept + (size_t)got;
        /* Behind the text there are zeros, so that no word is read beyond it. */
        memset(block + size, 0, WORD_LIMIT);
        for (size_t at = 0; at < size && !found; at++) found = mentions(block + at, words);
        kept = size < WORD_LIMIT ? size : WORD_LIMIT;
        memmove(block, block + size - kept, kept);
    }
    if (file >= 0) sys_close((int)file);
    return found || file < 0 || got < 0;
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

const char *replace_file(const char *path, const Text *content) {
    const char *temporary = name_temporary(path);
    Status old;
    long answer = sys_status(-1, path, true, &old);
    if (answer < 0) return join((const char *const[]){"cannot look at ", path, ": ", sys_error(answer), NULL});
    /* One that was killed while it wrote may have left its file; our process number makes it ours. */
    sys_unlink(temporary);
    long file = sys_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return join((const char *const[]){"cannot write ", temporary, ": ", sys_error(file), NULL});
    answer = fill((int)file, content, &old);
    long closed = sys_close((int)file);
    if (answer == 0) answer = closed;
    if (answer == 0) answer = sys_rename(temporary, path);
    if (answer == 0) return NULL;
    sys_unlink(temporary);
    return join((const char *const[]){"cannot replace ", path, ": ", sys_error(answer), NULL});
}
