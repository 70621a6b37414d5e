/*
 * What a process's first context takes of its device. No process can see that from within, and NVML does: it is asked before
 * and after. The process that is new in its list is this one; its pid there may be of another namespace. Of several that are
 * new, as others start at the same moment, the one with the least: each of them has a context at least. Where there are none,
 * what the device has less counts.
 */
#ifndef VGPU_CONTEXT_SIZE_H
#define VGPU_CONTEXT_SIZE_H

#include <stdbool.h>

#include "front/driver.h"
#include "front/nvml.h"

#define CONTEXT_SIZE_PROCESSES 128u

struct context_reading {
    void *nvml;
    nvml_device device;
    unsigned long long used; /* of the device, by everybody */
    unsigned count;
    struct nvml_process processes[CONTEXT_SIZE_PROCESSES];
    bool has_list;
};

/* False where NVML cannot be asked; there is nothing to end then. */
bool context_size_begin(struct context_reading *before, CUdevice device);

/* Bytes, or 0 where what was found cannot be a context. */
uint64_t context_size_end(const struct context_reading *before);

#endif
