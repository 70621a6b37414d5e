/* disable-device-node-modification: the driver's user-space part leaves the container's device nodes alone. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static const char FOLDER[] = "proc/driver/nvidia", NAME[] = "params";

static void write_copy(int folder, const char *text, const char *params) {
    int copy = openat(folder, NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (copy < 0 || write(copy, text, strlen(text)) != (ssize_t)strlen(text))
        fail("cannot copy %s: %s", params, strerror(errno));
    close(copy);
}

static const char *name_descriptor(char *into, size_t room, int descriptor) {
    snprintf(into, room, "/proc/self/fd/%d", descriptor);
    return into;
}

/* Before Linux 5.2 a file system cannot be made without a place: it lies over the directory until the copy is in its own. */
static void cover(int root, int target, const char *text, const char *params) {
    char from[64], to[64];
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    int below = open_inside(root, FOLDER, O_PATH | O_DIRECTORY);
    if (below < 0 || mount("tmpfs", name_descriptor(to, sizeof to, below), "tmpfs", flags, "mode=0555,size=64k"))
        fail("cannot mount a file system for %s: %s", params, strerror(errno));
    close(below);
    int folder = open_inside(root, FOLDER, O_PATH | O_DIRECTORY);
    if (folder < 0) fail("cannot open the file system for %s: %s", params, strerror(errno));
    write_copy(folder, text, params);
    int copy = openat(folder, NAME, O_PATH | O_NOFOLLOW | O_CLOEXEC), reason = 0;
    if (copy < 0 ||
        mount(name_descriptor(from, sizeof from, copy), name_descriptor(to, sizeof to, target), NULL, MS_BIND, NULL))
        reason = errno;
    close(copy);
    if (umount2(name_descriptor(from, sizeof from, folder), MNT_DETACH)) reason = errno;
    close(folder);
    if (reason) fail("cannot put the copy over %s: %s", params, strerror(reason));
    /* By what lies there now: root in the container could write into it otherwise. */
    int placed = openat(open_inside(root, FOLDER, O_PATH | O_DIRECTORY), NAME, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (placed < 0 ||
        mount(NULL, name_descriptor(to, sizeof to, placed), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, NULL))
        fail("cannot protect the copy of %s: %s", params, strerror(errno));
    close(placed);
}

static void place_copy(int root, int target, const char *text, const char *params) {
    int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
    if (context < 0 && errno == ENOSYS) {
        cover(root, target, text, params);
        return;
    }
    if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        fail("cannot make a file system for %s: %s", params, strerror(errno));
    int mounted = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (mounted < 0) fail("cannot mount a file system for %s: %s", params, strerror(errno));
    write_copy(mounted, text, params);
    int tree = (int)syscall(SYS_open_tree, mounted, NAME, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    /* Root in the container could write into it otherwise. Kernels before 5.12 do not know the call. */
    struct mount_attributes read_only = {.set = MOUNT_ATTR_RDONLY};
    if (tree >= 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &read_only, sizeof read_only) &&
        errno != ENOSYS)
        fail("cannot protect the copy of %s: %s", params, strerror(errno));
    if (tree < 0 || syscall(SYS_move_mount, tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
        fail("cannot put the copy over %s: %s", params, strerror(errno));
}

void protect_device_nodes(int root, const char *params) {
    static const char SETTING[] = "ModifyDeviceFiles: ";
    int descriptor = open(params, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return; /* no driver, nothing to protect */
    char *text = read_all(descriptor, STATE_LIMIT, params);
    close(descriptor);
    char *setting = strstr(text, "ModifyDeviceFiles: 1");
    if (setting) {
        setting[sizeof SETTING - 1] = '0';
        int target = open_inside(root, "proc/driver/nvidia/params", O_PATH);
        if (target < 0 && errno != ENOENT) fail("cannot open the container's %s: %s", params, strerror(errno));
        if (target >= 0) place_copy(root, target, text, params);
    }
    free(text);
}
