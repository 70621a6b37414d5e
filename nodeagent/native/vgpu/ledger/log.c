/* See log.h. */
#define _GNU_SOURCE
#include "ledger/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void log_line(const char *format, ...) {
    const char *said = secure_getenv("NODEAGENT_VGPU_LOG");
    if (!said || said[0] != '1') return;
    int kept = errno;
    char line[256];
    int head = snprintf(line, sizeof line, "nodeagent-vgpu[%d]: ", (int)getpid());
    va_list values;
    va_start(values, format);
    int length = head + vsnprintf(line + head, sizeof line - (size_t)head - 1, format, values);
    va_end(values);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)length + 1);
    (void)written;
    errno = kept;
}
