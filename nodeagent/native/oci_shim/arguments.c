/* The arguments, as runc and crun read them: flags with one dash or two, a value behind `=` or as the next argument,
 * then the command, then its flags and the container's name in any order. */
#include "shim.h"

static const char *const GLOBAL[] = {"log",      "log-format",     "root",      "criu",
                                     "rootless", "cgroup-manager", "log-level", NULL};
static const char *const OF_CREATE[] = {"console-socket", "pid-file", "preserve-fds", NULL};

static bool is_among(const char *const *list, const char *name) {
    for (; *list; list++)
        if (same(*list, name)) return true;
    return false;
}

Call read_arguments(char **arguments) {
    Call call = {.bundle = ""};
    const char *command = NULL;
    for (char **at = *arguments ? arguments + 1 : arguments; *at; at++) {
        const char *flag = *at;
        if (flag[0] != '-' || !flag[1]) {
            if (!command) command = flag;
            continue;
        }
        flag += flag[1] == '-' ? 2 : 1;
        if (!*flag) break;
        const char *equals = strchr(flag, '=');
        const char *name = equals ? copy_slice((Slice){flag, (size_t)(equals - flag)}) : flag;
        bool is_bundle = same(name, "b") || same(name, "bundle");
        bool has_value = is_bundle || is_among(command ? OF_CREATE : GLOBAL, name);
        const char *value = equals ? equals + 1 : NULL;
        if (!value && has_value && at[1]) value = *++at;
        if (is_bundle && (!command || same(command, "create"))) {
            if (!value) fail("bundle option requires an argument");
            call.bundle = value;
        }
        if (!command && value && same(name, "log")) call.log = value;
        if (!command && value && same(name, "log-format")) call.log_json = same(value, "json");
    }
    call.creates = command && same(command, "create");
    return call;
}
