/* What openat2 does, for kernels before 5.6 that have no such call: one component after another, so that the kernel itself
 * follows no link and never goes upwards. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { DEPTH_LIMIT = 256, LINKS_LIMIT = 40 };

struct walk {
    int above[DEPTH_LIMIT]; /* the directories on the way, the root first, and at the end what was found */
    int depth, links;
    long mount; /* which must not be left; 0 where that does not matter */
    char rest[PATH_LIMIT];
};

static int refuse(int reason) {
    errno = reason;
    return -1;
}

/* The number of the mount that a file lies on: a bind of the same file system is another one. -1 where it is not said. */
static long find_mount(int descriptor) {
    static const char FIELD[] = "mnt_id:";
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", descriptor);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    text[size > 0 ? size : 0] = 0;
    const char *field = strstr(text, FIELD);
    return field ? strtol(field + sizeof FIELD - 1, NULL, 10) : refuse(ENOSYS);
}

static void go_up(struct walk *walk, int to) {
    while (walk->depth > to) close(walk->above[walk->depth--]);
}

/* Puts the target of a link before the rest of the way. The links of /proc lead to files by themselves: out of the root. */
static int follow(struct walk *walk, int link, const char *rest) {
    char target[PATH_LIMIT];
    struct statfs system;
    if (++walk->links > LINKS_LIMIT) return refuse(ELOOP);
    if (fstatfs(link, &system)) return -1;
    if (system.f_type == PROC_SUPER_MAGIC) return refuse(ELOOP);
    ssize_t size = readlinkat(link, "", target, sizeof target);
    if (size < 0) return -1;
    size_t length = strlen(rest);
    if (!size) return refuse(ENOENT);
    if ((size_t)size + length >= sizeof target) return refuse(ENAMETOOLONG);
    memcpy(target + size, rest, length + 1);
    strcpy(walk->rest, target);
    if (*target == '/') go_up(walk, 0);
    return 0;
}

/* One component, whose name is `size` long; what is behind it is left in `rest`. */
static int step(struct walk *walk, char *name, size_t size, int flags) {
    char component[NAME_MAX + 1], *rest = name + size;
    struct stat status;
    if (size > NAME_MAX) return refuse(ENAMETOOLONG);
    memcpy(component, name, size);
    component[size] = 0;
    int here =
        strcmp(component, "..") ? openat(walk->above[walk->depth], component, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (!strcmp(component, "..")) go_up(walk, walk->depth ? walk->depth - 1 : 0);
    else if (here < 0) return -1;
    else if (fstat(here, &status)) goto failed;
    else {
        long mount = walk->mount ? find_mount(here) : 0;
        if (mount < 0) goto failed;
        if (mount != walk->mount) {
            errno = EXDEV;
            goto failed;
        }
        if (S_ISLNK(status.st_mode) && (*rest || !(flags & O_NOFOLLOW))) {
            if (follow(walk, here, rest)) goto failed;
            close(here);
            return 0;
        }
        if (*rest && !S_ISDIR(status.st_mode)) {
            errno = ENOTDIR;
            goto failed;
        }
        if (walk->depth + 1 == DEPTH_LIMIT) {
            errno = ENAMETOOLONG;
            goto failed;
        }
        walk->above[++walk->depth] = here;
    }
    memmove(walk->rest, rest, strlen(rest) + 1);
    return 0;
failed:;
    int reason = errno;
    close(here);
    return refuse(reason);
}

static int walk_on(struct walk *walk, int flags) {
    for (;;) {
        char *name = walk->rest + strspn(walk->rest, "/");
        size_t size = strcspn(name, "/");
        if (!size) break;
        if (size == 1 && *name == '.') memmove(walk->rest, name + 1, strlen(name));
        else if (step(walk, name, size, flags)) return -1;
    }
    struct stat status;
    if (fstat(walk->above[walk->depth], &status)) return -1;
    if (flags & O_DIRECTORY && !S_ISDIR(status.st_mode)) return refuse(ENOTDIR);
    if (flags & O_PATH) return fcntl(walk->above[walk->depth], F_DUPFD_CLOEXEC, 0);
    return openat(walk->above[walk->depth], ".", flags | O_CLOEXEC); /* to read, which is done of directories alone */
}

int walk_inside(int root, const char *path, int flags, int own) {
    struct walk walk = {.depth = 0};
    if (!*path) return refuse(ENOENT);
    if (strlen(path) >= sizeof walk.rest) return refuse(ENAMETOOLONG);
    if (own && (walk.mount = find_mount(root)) < 0) return -1;
    strcpy(walk.rest, path);
    if ((walk.above[0] = fcntl(root, F_DUPFD_CLOEXEC, 0)) < 0) return -1;
    int found = walk_on(&walk, flags), reason = errno;
    go_up(&walk, 0);
    close(walk.above[0]);
    errno = reason;
    return found;
}
