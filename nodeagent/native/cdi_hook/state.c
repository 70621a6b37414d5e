/* The state that the runtime writes to standard input, and the container's root by it. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

enum { CONFIG_LIMIT = 16 << 20 };

static const char PROGRAM[] = "nodeagent-cdi-hook";

char root_path[2 * PATH_LIMIT + 16];
int failure = 1;

/* Runtimes show what a hook has said when it fails, and nothing when it succeeds: such a line goes to the host's log as well,
 * which is reached until the container's root is entered. It is lost where nobody takes it at once: no container waits for it. */
static void write_log(const char *line) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    char text[3 * PATH_LIMIT];
    int size = snprintf(text, sizeof text, "<%d>%s[%d]: %s%s%s", LOG_DAEMON | LOG_WARNING, PROGRAM, (int)getpid(), line,
                        *root_path ? ", in the container with the root " : "", root_path);
    int log = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (log < 0) return;
    sendto(log, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1, MSG_NOSIGNAL,
           (struct sockaddr *)&address, sizeof address);
    close(log);
}

static void say(const char *format, va_list values, int is_shown) {
    char line[PATH_LIMIT + 256];
    vsnprintf(line, sizeof line, format, values);
    fprintf(stderr, "%s: %s\n", PROGRAM, line);
    if (!is_shown) write_log(line);
}

void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    say(format, values, failure);
    va_end(values);
    exit(failure);
}

void warn(const char *format, ...) {
    va_list values;
    va_start(values, format);
    say(format, values, 0);
    va_end(values);
}

char *read_all(int descriptor, size_t limit, const char *what) {
    size_t size = 0, room = 65536;
    char *text = malloc(room + 1);
    for (;;) {
        if (!text) fail("no memory for %s", what);
        ssize_t got = read(descriptor, text + size, room - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("cannot read %s: %s", what, strerror(errno));
        if (got == 0) break;
        size += (size_t)got;
        if (size > limit) fail("%s is larger than %zu bytes", what, limit);
        if (size == room) text = realloc(text, (room *= 2) + 1);
    }
    text[size] = 0;
    return text;
}

/* The container's root directory, from the state that the runtime writes to standard input. */
int open_root(void) {
    char bundle[PATH_LIMIT], root[PATH_LIMIT], path[PATH_LIMIT + 16];
    char *state = read_all(STDIN_FILENO, STATE_LIMIT, "the state");
    copy_string(find_key(state, "root"), root, sizeof root);
    copy_string(find_key(state, "bundle"), bundle, sizeof bundle);
    if (!root[0]) {
        if (!bundle[0]) fail("the state names no bundle");
        snprintf(path, sizeof path, "%s/config.json", bundle);
        int descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) fail("cannot open %s: %s", path, strerror(errno));
        char *config = read_all(descriptor, CONFIG_LIMIT, "config.json");
        close(descriptor);
        const char *object = find_key(config, "root");
        copy_string(object ? find_key(object, "path") : NULL, root, sizeof root);
        if (!root[0]) fail("%s names no root", path);
        free(config);
    }
    free(state);
    if (root[0] == '/') snprintf(root_path, sizeof root_path, "%s", root);
    else snprintf(root_path, sizeof root_path, "%s/%s", bundle, root);
    int descriptor = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) fail("cannot open the container's root %s: %s", root_path, strerror(errno));
    return descriptor;
}
