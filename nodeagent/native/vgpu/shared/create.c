/* See create.h. */
#define _GNU_SOURCE
#include "shared/create.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../include/vgpu_files.h"

#define PATH_BYTES 4200

uint64_t create_checksum(uint64_t value, const void *content, size_t bytes) {
    const uint8_t *each = content;
    for (size_t i = 0; i < bytes; i++) value = (value ^ each[i]) * VGPU_CHECKSUM_PRIME;
    return value;
}

/* With all of its place, which nobody can take later: to write where there is none ends a process. */
static bool fill(int file) {
    struct vgpu_usage_header header = {
        .magic = VGPU_USAGE_MAGIC,
        .version = VGPU_VERSION,
        .header_bytes = sizeof header,
        .process_bytes = sizeof(struct vgpu_process),
        .processes = VGPU_PROCESSES,
        .devices = VGPU_DEVICES,
    };
    header.checksum = create_checksum(VGPU_CHECKSUM_START, &header, offsetof(struct vgpu_usage_header, checksum));
    return fallocate(file, 0, 0, sizeof(struct vgpu_usage)) == 0 &&
           pwrite(file, &header, sizeof header, 0) == (ssize_t)sizeof header &&
           fchmod(file, 0666) == 0; /* whoever the container's processes run as */
}

bool create_usage(const char *path) {
    char made[PATH_BYTES];
    struct timespec now = {0, 0};
    int kept = errno;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(made, sizeof made, "%s.%d.%lld", path, (int)getpid(),
                          (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    errno = 0;
    int file = length > 0 && length < PATH_BYTES ? open(made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (file >= 0 && fill(file)) link(made, path); /* refused where another process was first */
    bool has_room = errno != ENOSPC;
    if (file >= 0) {
        unlink(made);
        close(file);
    }
    errno = kept;
    return has_room;
}
