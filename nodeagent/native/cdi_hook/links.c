/* create-symlinks: other names of the driver's libraries. */
#include "hook.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void create_symlink(int root, const char *argument) {
    char target[PATH_LIMIT], temporary[64], present[PATH_LIMIT];
    const char *separator = strstr(argument, "::"), *name;
    if (!separator || separator == argument || (size_t)(separator - argument) >= sizeof target)
        fail("--link=%s: expected TARGET::LINK", argument);
    memcpy(target, argument, (size_t)(separator - argument));
    target[separator - argument] = 0;
    int parent = open_parent(root, separator + 2, &name), reason = 0;
    if (parent < 0) { pass_over(separator + 2); return; }
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
        if (is_foreign(reason)) pass_over(separator + 2);
        else if (reason) fail("cannot make the link %s: %s", separator + 2, strerror(reason));
    }
    close(parent);
}
