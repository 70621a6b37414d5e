/* One line for whoever asked for the container: on standard error, and in the log of the low-level runtime, from where
 * containerd takes what it tells the kubelet. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *log_path, *debug_path;
static bool log_is_json;

void report_to(const char *log, bool json) {
    log_path = log;
    log_is_json = json;
}

void report_debug(const char *path) {
    debug_path = path && *path ? path : NULL;
}

static void write_all(int descriptor, const char *line) {
    for (size_t left = strlen(line); left;) {
        ssize_t wrote = write(descriptor, line, left);
        if (wrote <= 0) return;
        line += wrote;
        left -= (size_t)wrote;
    }
}

static void append(const char *path, const char *line) {
    size_t size = (size_t)(base_name(path) - path);
    while (size > 1 && path[size - 1] == '/') size--;
    if (size) mkdir(compose("%.*s", (int)size, path), 0755);
    /* Whoever can put a link or a pipe in the place of a log must not have root write elsewhere, or wait. */
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (file < 0) return; /* There is standard error, and nobody left to tell. */
    struct stat status;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) write_all(file, line);
    close(file);
}

static void log_line(const char *path, bool json, const char *level, const char *message) {
    time_t now = time(NULL);
    struct tm at = {0};
    gmtime_r(&now, &at);
    const char *moment = compose("%04d-%02d-%02dT%02d:%02d:%02dZ", at.tm_year + 1900, at.tm_mon + 1, at.tm_mday,
                                 at.tm_hour, at.tm_min, at.tm_sec);
    Text quoted = {0};
    text_json(&quoted, message);
    append(path, json ? compose("{\"level\":\"%s\",\"msg\":%s,\"time\":\"%s\"}\n", level, quoted.at, moment)
                      : compose("time=\"%s\" level=%s msg=%s\n", moment, level, quoted.at));
}

static const char *report(const char *level, const char *pattern, va_list values) {
    char *message = compose("nodeagent-oci-shim: %s", compose_from(pattern, values));
    for (char *each = message; (each = strpbrk(each, "\r\n"));) *each = ' ';
    if (log_path && *log_path) log_line(log_path, log_is_json, level, message);
    if (debug_path) log_line(debug_path, false, level, message);
    return message;
}

void fail(const char *pattern, ...) {
    va_list values;
    va_start(values, pattern);
    write_all(STDERR_FILENO, compose("%s\n", report("error", pattern, values)));
    exit(1);
}

void warn(const char *pattern, ...) {
    va_list values;
    va_start(values, pattern);
    report("warning", pattern, values);
    va_end(values);
}

const char *describe_error(int error) {
    switch (error) {
    case ENOENT: return "no such file or directory";
    case EACCES: return "permission denied";
    case EPERM: return "operation not permitted";
    case ENOSPC: return "no space left on device";
    case EDQUOT: return "disk quota exceeded";
    case EFBIG: return "it is too large";
    case EROFS: return "read-only file system";
    case EIO: return "input/output error";
    case ENOMEM: return "no memory";
    case ELOOP: return "it is a symbolic link, or too many of them";
    case ENOTDIR: return "not a directory";
    case EISDIR: return "it is a directory";
    case ENOEXEC: return "it is no program for this machine";
    case ENAMETOOLONG: return "its name is too long";
    case EMFILE:
    case ENFILE: return "too many open files";
    case EEXIST: return "it exists already";
    case E2BIG: return "too many arguments";
    case ETXTBSY: return "it is being written";
    }
    return compose("error %d", error);
}
