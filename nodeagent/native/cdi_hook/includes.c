/* What ldconfig would read: an image may have it wait for a pipe, or read files that include one another without end. */
#include "hook.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_LIMIT = 32, FILES_LIMIT = 1000, ENTRIES_LIMIT = 1 << 17, BYTES_LIMIT = 4 << 20 };

static struct file {
    dev_t device;
    ino_t number;
} above[DEPTH_LIMIT];
static long files, entries, bytes;

static void check_file(const char *path, int depth);

/* Each path that a pattern of an include line stands for, from the component at `at` on; `before` is the path so far. */
static void check_pattern(const char *before, const char *at, int depth) {
    char path[PATH_LIMIT], component[256];
    while (*at == '/') at++;
    size_t size = strcspn(at, "/");
    if (!*at) {
        check_file(before, depth);
        return;
    }
    if (size >= sizeof component || strlen(before) + 258 >= sizeof path) return; /* no file has such a name */
    memcpy(component, at, size);
    component[size] = 0;
    at += size;
    if (!strpbrk(component, "*?[\\")) {
        snprintf(path, sizeof path, "%s/%s", before, component);
        check_pattern(path, at, depth);
        return;
    }
    DIR *directory = opendir(*before ? before : "/");
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (++entries > ENTRIES_LIMIT) fail("the include lines of /etc/ld.so.conf go through too many files");
        if (fnmatch(component, entry->d_name, FNM_PERIOD)) continue;
        snprintf(path, sizeof path, "%s/%s", before, entry->d_name);
        check_pattern(path, at, depth);
    }
    closedir(directory);
}

static void check_line(const char *path, char *line, int depth) {
    static const char SPACE[] = " \t\n\r\f\v", WORD[] = "include";
    line[strcspn(line, "#")] = 0;
    line += strspn(line, SPACE);
    if (strncmp(line, WORD, sizeof WORD - 1) || !line[sizeof WORD - 1] || !strchr(SPACE, line[sizeof WORD - 1])) return;
    line += sizeof WORD - 1;
    const char *slash = strrchr(path, '/');
    char *rest, *copy = strndup(path, (size_t)(slash - path));
    if (!copy) fail("no memory for %s", path);
    for (char *pattern = strtok_r(line, SPACE, &rest); pattern; pattern = strtok_r(NULL, SPACE, &rest))
        check_pattern(*pattern == '/' ? "" : copy, pattern, depth + 1);
    free(copy);
}

static void check_file(const char *path, int depth) {
    struct stat status;
    if (stat(path, &status) || S_ISDIR(status.st_mode)) return; /* ldconfig passes over it */
    if (!S_ISREG(status.st_mode)) fail("/etc/ld.so.conf of the image leads to %s, which is no plain file", path);
    if (depth == DEPTH_LIMIT)
        fail("the include lines of /etc/ld.so.conf go deeper than %d files at %s", DEPTH_LIMIT, path);
    if (++files > FILES_LIMIT) fail("/etc/ld.so.conf of the image includes more than %d files", FILES_LIMIT);
    for (int number = 0; number < depth; number++)
        if (above[number].device == status.st_dev && above[number].number == status.st_ino)
            fail("%s, to which /etc/ld.so.conf of the image leads, includes itself", path);
    if (status.st_size > BYTES_LIMIT || (bytes += status.st_size) > BYTES_LIMIT)
        fail("/etc/ld.so.conf of the image leads to more than %d bytes, at %s", BYTES_LIMIT, path);
    above[depth] = (struct file){status.st_dev, status.st_ino};
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "r");
    if (!file) fail("cannot read %s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) check_line(path, line, depth);
    free(line);
    fclose(file);
}

void check_includes(const char *path) {
    check_file(path, 0);
}
