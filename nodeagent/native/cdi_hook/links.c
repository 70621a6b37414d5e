/* create-symlinks: other names of the driver's libraries. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The file system that the runtime has made for /dev, which is no volume and not the host's; -1 where there is none. */
static int open_devices(int root) {
    struct stat status, host;
    struct statfs system;
    int devices = open_inside(root, "dev", O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (devices < 0) return -1;
    if (!fstat(devices, &status) && !fstatfs(devices, &system) && system.f_type == TMPFS_MAGIC &&
        (stat("/dev", &host) || host.st_dev != status.st_dev))
        return devices;
    close(devices);
    return -1;
}

void create_symlink(int root, const char *argument) {
    char target[PATH_LIMIT], temporary[64], present[PATH_LIMIT];
    const char *separator = strstr(argument, "::"), *name;
    if (!separator || separator == argument || (size_t)(separator - argument) >= sizeof target)
        fail("--link=%s: expected TARGET::LINK", argument);
    memcpy(target, argument, (size_t)(separator - argument));
    target[separator - argument] = 0;
    static const char DEVICES[] = "/dev/";
    const char *link = separator + 2;
    int devices = strncmp(link, DEVICES, sizeof DEVICES - 1) ? -1 : open_devices(root), reason = 0;
    int parent = devices < 0 ? open_parent(root, link, &name) : open_parent(devices, link + sizeof DEVICES - 1, &name);
    if (devices >= 0) close(devices);
    if (parent < 0) {
        pass_over(link);
        return;
    }
    ssize_t length = readlinkat(parent, name, present, sizeof present - 1);
    if (length >= 0) present[length] = 0;
    if (length < 0 || strcmp(present, target)) {
        snprintf(temporary, sizeof temporary, ".nodeagent-%d", (int)getpid());
        unlinkat(parent, temporary, 0);
        if (symlinkat(target, parent, temporary)) reason = errno;
        else if (renameat(parent, temporary, parent, name)) {
            reason = errno;
            unlinkat(parent, temporary, 0);
        }
        if (is_foreign(reason)) pass_over(link);
        else if (reason) fail("cannot make the link %s: %s", link, strerror(reason));
    }
    close(parent);
}
