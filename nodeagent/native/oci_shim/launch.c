/* Becomes the low-level runtime. */
#include "shim.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static const char STANDARD[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* Whether it is a program, and another one than this: by the name `runc` this one would call itself for ever. */
static bool is_fit(const char *path) {
    struct stat found, own;
    if (stat(path, &found) < 0 || !S_ISREG(found.st_mode) || access(path, X_OK) < 0) return false;
    return stat("/proc/self/exe", &own) < 0 || found.st_ino != own.st_ino || found.st_dev != own.st_dev;
}

static const char *search(const char *directories, const char *name) {
    while (directories && *directories) {
        size_t size = strcspn(directories, ":");
        const char *path = compose("%.*s/%s", (int)size, directories, name);
        /* What lies in the current directory, which may be the bundle, is not called. */
        if (directories[0] == '/' && is_fit(path)) return path;
        directories = directories[size] ? directories + size + 1 : NULL;
    }
    return NULL;
}

void launch(const Names *candidates, char **arguments) {
    Text tried = {0};
    for (size_t each = 0; each < candidates->count; each++) {
        const char *name = candidates->at[each], *path = NULL;
        if (name[0] == '/') path = is_fit(name) ? name : NULL;
        else if (!(path = search(getenv("PATH"), name))) path = search(STANDARD, name);
        if (path) {
            arguments[0] = (char *)(uintptr_t)path;
            execv(path, arguments);
            fail("cannot run %s: %s", path, describe_error(errno));
        }
        text_say(&tried, each ? " " : "");
        text_say(&tried, name);
    }
    fail("no runtime binary found from candidate list: [%s]", text_end(&tried));
}
