/* ldconfig's prison: namespaces of its own, the container's root as its root, every mount below that read only, and no /proc. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

/* A path as mountinfo writes it: a space is \040. */
static void unescape(char *path) {
    char *to = path;
    for (char *at = path; *at; to++) {
        if (*at == '\\' && at[1] && at[2] && at[3]) {
            *to = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + at[3] - '0');
            at += 4;
        } else *to = *at++;
    }
    *to = 0;
}

/* Calls back with each mount but the root, by its path and the type of its file system; says how often it got a yes. */
static int each_mount(int processes, int (*take)(const char *path, const char *type)) {
    int descriptor = openat(processes, "self/mountinfo", O_RDONLY | O_CLOEXEC), count = 0;
    FILE *mounts = descriptor < 0 ? NULL : fdopen(descriptor, "r");
    if (!mounts) fail("cannot read the container's mounts: %s", strerror(errno));
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, mounts) > 0) {
        /* Its identity, its parent's, its device's, its root, and then its place; its type is behind a dash. */
        char *path = line, *type = strstr(line, " - ");
        for (int field = 0; path && field < 4; field++) path = (path = strchr(path, ' ')) ? path + 1 : NULL;
        if (!path || !type) fail("cannot read the container's mounts");
        type += strlen(" - ");
        type[strcspn(type, " ")] = 0;
        path[strcspn(path, " ")] = 0;
        unescape(path);
        if (strcmp(path, "/")) count += take(path, type);
    }
    if (ferror(mounts)) fail("cannot read the container's mounts: %s", strerror(errno));
    free(line);
    fclose(mounts);
    return count;
}

static int is_processes(const char *path, const char *type) {
    (void)path;
    return !strcmp(type, "proc");
}

static int leave_processes(const char *path, const char *type) {
    return is_processes(path, type) && !umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
}

static int protect_one(const char *path, const char *type) {
    (void)type;
    if (mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
        fail("cannot keep %s from being changed: %s", path, strerror(errno));
    return 1;
}

/* Volumes and the kernel's own files are not ldconfig's to change: it makes links in each directory that the image names. */
static void protect_mounts(int processes) {
    struct statvfs system;
    struct mount_attributes protect = {.set = MOUNT_ATTR_RDONLY}, release = {.clear = MOUNT_ATTR_RDONLY};
    /* The links there lead out of every root: /proc/1/root is the host's while a container is created. */
    each_mount(processes, leave_processes);
    if (each_mount(processes, is_processes)) fail("cannot hide the container's /proc from ldconfig");
    int is_writable = !statvfs("/", &system) && !(system.f_flag & ST_RDONLY);
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &protect, sizeof protect)) {
        if (errno != ENOSYS) fail("cannot keep the container's mounts from being changed: %s", strerror(errno));
        each_mount(processes, protect_one); /* one by one, before 5.12 */
    } else if (is_writable && syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &release, sizeof release))
        fail("cannot let the container's root be changed: %s", strerror(errno));
}

void lock_in(void) {
    int processes = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET))
        fail("cannot leave the runtime's namespaces: %s", strerror(errno));
    if (mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL)) fail("cannot make mounts private: %s", strerror(errno));
    /* By its name, because a descriptor from before leads to the other namespace; twice, because the bind lies over it. */
    if (chdir(root_path) || mount(".", ".", NULL, MS_BIND | MS_REC, NULL) || chdir(root_path))
        fail("cannot bind the container's root: %s", strerror(errno));
    if (syscall(SYS_pivot_root, ".", ".")) {
        /* A host that runs from its initial RAM disk cannot pivot. */
        if (mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".")) fail("cannot change the root: %s", strerror(errno));
    } else if (umount2(".", MNT_DETACH)) fail("cannot leave the host's root: %s", strerror(errno));
    if (chdir("/")) fail("cannot enter the new root: %s", strerror(errno));
    protect_mounts(processes);
    close(processes);
}
