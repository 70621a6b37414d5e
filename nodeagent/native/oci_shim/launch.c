/* Becomes the low-level runtime. */
#include "shim.h"

static const char STANDARD[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* Whether it is a program, and another one than this: by the name `runc` this one would call itself for ever. */
static bool is_fit(const char *path) {
    Status found, own;
    if (sys_status(-1, path, true, &found) < 0 || !is_kind(found.mode, REGULAR) || sys_can_execute(path) < 0)
        return false;
    return sys_status(-1, "/proc/self/exe", true, &own) < 0 || found.inode != own.inode ||
           found.device_major != own.device_major || found.device_minor != own.device_minor;
}

static const char *search(const char *directories, const char *name) {
    while (directories && *directories) {
        const char *end = find_char(directories, ':');
        size_t size = 0;
        while (directories[size] && directories + size != end) size++;
        const char *directory = copy_slice((Slice){directories, size});
        const char *path = join((const char *const[]){directory, "/", name, NULL});
        /* What lies in the current directory, which may be the bundle, is not called. */
        if (directory[0] == '/' && is_fit(path)) return path;
        directories = end ? end + 1 : NULL;
    }
    return NULL;
}

void launch(const Names *candidates, char **arguments) {
    Text tried = {0};
    for (size_t each = 0; each < candidates->count; each++) {
        const char *name = candidates->at[each], *path = NULL;
        if (name[0] == '/') path = is_fit(name) ? name : NULL;
        else if (!(path = search(sys_variable("PATH"), name))) path = search(STANDARD, name);
        if (path) {
            arguments[0] = (char *)(uintptr_t)path;
            fail("cannot run ", path, ": ", sys_error(sys_execute(path, arguments)));
        }
        text_say(&tried, each ? " " : "");
        text_say(&tried, name);
    }
    fail("no runtime binary found from candidate list: [", text_end(&tried), "]");
}
