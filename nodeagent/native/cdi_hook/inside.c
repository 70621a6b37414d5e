/* Each path below the container's root is opened so that no link in the image leads out. */
#include "hook.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NAMES_LIMIT = 1 << 16, TRIES_LIMIT = 10000 };

int open_inside(int root, const char *path, int flags, mode_t mode) {
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC), .mode = flags & O_CREAT ? mode : 0,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int descriptor, tries = 0;
    /* Whatever is renamed or mounted meanwhile, anywhere on the host: the kernel then cannot tell whether a link upwards
     * has stayed inside, and wants to be asked again. */
    do descriptor = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    while (descriptor < 0 && errno == EAGAIN && ++tries < TRIES_LIMIT);
    return descriptor;
}

/* The directory that a path is in, made where it is missing. */
int open_parent(int root, const char *path, const char **name) {
    char part[PATH_LIMIT];
    if (strlen(path) >= sizeof part) fail("%s: the path is too long", path);
    strcpy(part, path);
    char *slash = strrchr(part, '/');
    *name = slash ? path + (slash - part) + 1 : path;
    if (!**name || !strcmp(*name, "..") || !strcmp(*name, ".")) fail("%s: the path names no file", path);
    if (!slash) return open_inside(root, ".", O_PATH | O_DIRECTORY, 0);
    *slash = 0;
    for (char *at = part; at && *at;) {
        char *next = strchr(at + 1, '/');
        if (next) *next = 0;
        int here = open_inside(root, part, O_PATH | O_DIRECTORY, 0);
        if (here < 0 && errno == ENOENT) {
            const char *last;
            int above = open_parent(root, part, &last);
            if (mkdirat(above, last, 0755) && errno != EEXIST) fail("cannot make %s: %s", part, strerror(errno));
            close(above);
        } else if (here >= 0) close(here);
        if (next) *next = '/';
        at = next;
    }
    int parent = open_inside(root, *part ? part : ".", O_PATH | O_DIRECTORY, 0);
    if (parent < 0) fail("cannot open %s: %s", part, strerror(errno));
    return parent;
}

void write_inside(int root, const char *path, const char *text, int flags, mode_t mode) {
    const char *name;
    close(open_parent(root, path, &name));
    int descriptor = open_inside(root, path, O_WRONLY | O_CREAT | O_NONBLOCK | flags, mode);
    if (descriptor < 0) fail("cannot open %s: %s", path, strerror(errno));
    struct stat status;
    if (fstat(descriptor, &status) || !S_ISREG(status.st_mode)) fail("%s is no file", path);
    size_t size = strlen(text);
    while (size) {
        ssize_t written = write(descriptor, text, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail("cannot write %s: %s", path, strerror(errno));
        text += written;
        size -= (size_t)written;
    }
    close(descriptor);
}

/* Calls back with each name in a directory; a directory that is not there has none. */
void each_name(int root, const char *path, void (*take)(const char *, void *), void *into) {
    int descriptor = open_inside(root, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    if (descriptor < 0) return;
    DIR *directory = fdopendir(descriptor);
    if (!directory) fail("cannot read %s: %s", path, strerror(errno));
    struct dirent *entry;
    for (int number = 0; number < NAMES_LIMIT && (entry = readdir(directory)); number++) take(entry->d_name, into);
    closedir(directory);
}
