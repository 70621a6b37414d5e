/* disable-device-node-modification: the driver's user-space part leaves the container's device nodes alone. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void protect_device_nodes(int root, const char *params) {
    int descriptor = open(params, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;  /* no driver, nothing to protect */
    char *text = read_all(descriptor, STATE_LIMIT, params);
    close(descriptor);
    char *setting = strstr(text, "ModifyDeviceFiles: 1");
    if (setting) {
        setting[strlen("ModifyDeviceFiles: ")] = '0';
        int target = open_inside(root, "proc/driver/nvidia/params", O_PATH);
        if (target < 0 && errno == ENOENT) { free(text); return; }
        if (target < 0) fail("cannot open the container's %s: %s", params, strerror(errno));
        int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
        if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
            fail("cannot make a file system for %s: %s", params, strerror(errno));
        int mounted = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        if (mounted < 0) fail("cannot mount a file system for %s: %s", params, strerror(errno));
        int copy = openat(mounted, "params", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        if (copy < 0 || write(copy, text, strlen(text)) != (ssize_t)strlen(text))
            fail("cannot copy %s: %s", params, strerror(errno));
        close(copy);
        int tree = (int)syscall(SYS_open_tree, mounted, "params", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        /* Root in the container could write into it otherwise. Kernels before 5.12 do not know the call. */
        struct mount_attributes read_only = {.set = MOUNT_ATTR_RDONLY};
        if (tree >= 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &read_only, sizeof read_only) && errno != ENOSYS)
            fail("cannot protect the copy of %s: %s", params, strerror(errno));
        if (tree < 0 || syscall(SYS_move_mount, tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
            fail("cannot put the copy over %s: %s", params, strerror(errno));
    }
    free(text);
}
