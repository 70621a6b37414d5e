/* Each path below the container's root is opened so that no link in the image leads out. */
#include "hook.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { NAMES_LIMIT = 1 << 16, TRIES_LIMIT = 10000 };

static int open_resolved(int root, const char *path, int flags, unsigned long long resolve) {
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve};
    static int has_no_call;
    int descriptor, tries = 0;
    if (has_no_call) return walk_inside(root, path, flags, !!(resolve & RESOLVE_NO_XDEV));
    /* Whatever is renamed or mounted meanwhile, anywhere on the host: the kernel then cannot tell whether a link upwards
     * has stayed inside, and wants to be asked again. */
    do descriptor = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    while (descriptor < 0 && errno == EAGAIN && ++tries < TRIES_LIMIT);
    if (descriptor >= 0 || errno != ENOSYS) return descriptor;
    has_no_call = 1; /* before 5.6 */
    return open_resolved(root, path, flags, resolve);
}

int open_inside(int root, const char *path, int flags) {
    return open_resolved(root, path, flags, 0);
}

int open_own(int root, const char *path, int flags) {
    return open_resolved(root, path, flags, RESOLVE_NO_XDEV);
}

int open_regular(int root, const char *path) {
    char name[64];
    struct stat status;
    struct statfs system;
    int place = open_inside(root, path, O_PATH);
    if (place < 0) return -1;
    if (fstat(place, &status) || fstatfs(place, &system)) fail("cannot look at %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC) {
        close(place);
        errno = EINVAL;
        return -1;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", place);
    int descriptor = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int reason = errno;
    close(place);
    errno = reason;
    return descriptor;
}

int is_foreign(int error) {
    return error == EXDEV || error == EROFS || error == EBUSY;
}

void pass_over(const char *path) {
    warn("/%s is on a mount or read only, passed over", path + (*path == '/'));
}

/* The directory that a path is in, made where it is missing; -1 where it is not on the root's own file system. */
int open_parent(int root, const char *path, const char **name) {
    char part[PATH_LIMIT];
    if (strlen(path) >= sizeof part) fail("%s: the path is too long", path);
    strcpy(part, path);
    char *slash = strrchr(part, '/');
    *name = slash ? path + (slash - part) + 1 : path;
    if (!**name || !strcmp(*name, "..") || !strcmp(*name, ".")) fail("%s: the path names no file", path);
    if (!slash) return open_own(root, ".", O_PATH | O_DIRECTORY);
    *slash = 0;
    for (char *at = part; at && *at;) {
        char *next = strchr(at + 1, '/');
        if (next) *next = 0;
        int here = open_own(root, part, O_PATH | O_DIRECTORY);
        if (here < 0 && errno == ENOENT) {
            const char *last;
            int above = open_parent(root, part, &last);
            if (above < 0) return -1;
            int refused = mkdirat(above, last, 0755) && errno != EEXIST ? errno : 0;
            close(above);
            if (is_foreign(refused)) {
                errno = refused;
                return -1;
            }
            if (refused) fail("cannot make %s: %s", part, strerror(refused));
        } else if (here >= 0) close(here);
        if (next) *next = '/';
        at = next;
    }
    int parent = open_own(root, *part ? part : ".", O_PATH | O_DIRECTORY);
    if (parent < 0 && !is_foreign(errno)) fail("cannot open %s: %s", part, strerror(errno));
    return parent;
}

/* A new file takes the place of whatever has the name, so that nothing is written through a link, a pipe or a device. */
int write_inside(int root, const char *path, const char *text, mode_t mode) {
    const char *name;
    char temporary[64];
    int parent = open_parent(root, path, &name);
    if (parent < 0) return -1;
    snprintf(temporary, sizeof temporary, ".nodeagent-%d", (int)getpid());
    unlinkat(parent, temporary, 0);
    int descriptor = openat(parent, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    int refused = descriptor < 0 ? errno : 0;
    for (size_t size = strlen(text); size && !refused;) {
        ssize_t written = write(descriptor, text, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            refused = errno;
            break;
        }
        text += written;
        size -= (size_t)written;
    }
    if (descriptor >= 0 && close(descriptor) && !refused) refused = errno;
    if (!refused && renameat(parent, temporary, parent, name)) refused = errno;
    if (refused) unlinkat(parent, temporary, 0);
    close(parent);
    if (refused && !is_foreign(refused)) fail("cannot write %s: %s", path, strerror(refused));
    errno = refused;
    return refused ? -1 : 0;
}

/* Calls back with each name in a directory; a directory that is not there has none. */
void each_name(int root, const char *path, void (*take)(const char *, void *), void *into) {
    int descriptor = open_inside(root, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (descriptor < 0) return;
    DIR *directory = fdopendir(descriptor);
    if (!directory) fail("cannot read %s: %s", path, strerror(errno));
    struct dirent *entry;
    for (int number = 0; number < NAMES_LIMIT && (entry = readdir(directory)); number++) take(entry->d_name, into);
    closedir(directory);
}
