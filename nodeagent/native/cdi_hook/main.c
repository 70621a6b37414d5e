/* The program that container runtimes run while they create a container, where `cdi.hooks` asks for it.
 *
 * It makes the linker cache list the driver's libraries, after those of an image that brings newer ones for older
 * drivers, makes their other names, tells EGL which GPUs there are, and keeps the driver's user-space part from changing
 * device nodes. It is linked statically and reads nothing but its arguments, the state on its standard
 * input and the container's own files, because the host may have no Python and every container waits for it.
 *
 * What is in the container is hostile: each path below its root is opened with RESOLVE_IN_ROOT, so that no link in the
 * image leads out, and ldconfig, which reads the image's files, runs from a sealed copy, in namespaces of its own, with
 * the container's root as its only file system.
 */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char PARAMS[] = "/proc/driver/nvidia/params";

static const char *value_of(const char *argument, const char *flag) {
    size_t length = strlen(flag);
    return !strncmp(argument, flag, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

/* What containers will need of the host: a kernel that opens paths within a root, and its ldconfig. */
static void check_host(void) {
    int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host < 0 || open_own(host, ".", O_PATH | O_DIRECTORY) < 0)
        fail("this kernel does not open paths within a root: %s", strerror(errno));
    open_ldconfig(NULL);
}

enum command { LINKS, COMPATIBILITY, CACHE, PROTECTION, PROFILE, COMMANDS };
static const char *const NAMES[COMMANDS] = {
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "update-application-profile",
};

int main(int count, char **arguments) {
    if (count < 2) fail("expected create-symlinks, update-ldcache or another command");
    const char *name = arguments[1], *value, *ldconfig = NULL, *params = PARAMS, *driver = "";
    char *folders[FOLDERS_LIMIT];
    int folder_count = 0, command = 0;
    umask(022);
    if (!strcmp(name, "self-check")) {
        check_host();
        return 0;
    }
    while (command < COMMANDS && strcmp(name, NAMES[command])) command++;
    if (command == COMMANDS) {
        /* A specification that is newer than this program must not keep containers from starting. */
        warn("does not know %s, passed over", name);
        return 0;
    }
    if (command == PROFILE) failure = 0;
    int root = open_root();
    for (int number = 2; number < count; number++) {
        const char *argument = arguments[number];
        if (command == LINKS && (value = value_of(argument, "--link"))) create_symlink(root, value);
        else if (command == CACHE && (value = value_of(argument, "--folder")) && folder_count < FOLDERS_LIMIT)
            folders[folder_count++] = (char *)value;
        else if (command == CACHE && (value = value_of(argument, "--ldconfig"))) ldconfig = value;
        else if (command == COMPATIBILITY && (value = value_of(argument, "--host-driver-version"))) driver = value;
        else if (command == PROTECTION && (value = value_of(argument, "--params"))) params = value;
        else fail("%s: unknown argument %s", name, argument);
    }
    if (command == COMPATIBILITY && !*driver) fail("%s: expected --host-driver-version", name);
    if (command == COMPATIBILITY) enable_compat(root, driver);
    else if (command == CACHE) update_ldcache(root, folders, folder_count, ldconfig);
    else if (command == PROTECTION) protect_device_nodes(root, params);
    else if (command == PROFILE) update_profile(root);
    return 0;
}
