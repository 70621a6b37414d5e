/* See context_size.h. */
#include "memory/context_size.h"

#include <string.h>

#include "ledger/devices.h"
#include "ledger/log.h"

#define BYTES_MOST (UINT64_C(4) << 30) /* no context has been seen to take so much */
#define UUID_TEXT 48

typedef nvml_result (*any)(const void *first, void *second, void *third);

/* A library that was not started, where there is none. */
static nvml_result call(void *nvml, const char *name, const void *first, void *second, void *third) {
    any function = (any)loader_find_in(nvml, name);
    return function ? function(first, second, third) : NVML_UNINITIALIZED;
}

static void write_uuid(char text[UUID_TEXT], const char *kind, const uint8_t uuid[VGPU_UUID_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    unsigned at = 4;
    memcpy(text, kind, at);
    for (unsigned i = 0; i < VGPU_UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
        text[at++] = digits[uuid[i] >> 4];
        text[at++] = digits[uuid[i] & 15];
    }
    text[at] = '\0';
}

/* A MIG device has a UUID of its own, which begins otherwise. */
static bool find_device(struct context_reading *reading, CUdevice device) {
    char text[UUID_TEXT];
    uint8_t uuid[VGPU_UUID_BYTES];
    if (!devices_find_uuid(device, uuid)) return false;
    write_uuid(text, "GPU-", uuid);
    if (call(reading->nvml, "nvmlDeviceGetHandleByUUID", text, &reading->device, NULL) == NVML_SUCCESS) return true;
    write_uuid(text, "MIG-", uuid);
    return call(reading->nvml, "nvmlDeviceGetHandleByUUID", text, &reading->device, NULL) == NVML_SUCCESS;
}

static bool read(struct context_reading *reading) {
    struct nvml_memory memory;
    if (call(reading->nvml, "nvmlDeviceGetMemoryInfo", reading->device, &memory, NULL) != NVML_SUCCESS) return false;
    reading->used = memory.used;
    reading->count = CONTEXT_SIZE_PROCESSES;
    reading->has_list = call(reading->nvml, "nvmlDeviceGetComputeRunningProcesses_v3", reading->device, &reading->count,
                             reading->processes) == NVML_SUCCESS;
    return true;
}

static void end(void *nvml, bool is_started) {
    if (is_started) call(nvml, "nvmlShutdown", NULL, NULL, NULL);
    if (nvml) loader_close(nvml);
}

bool context_size_begin(struct context_reading *before, CUdevice device) {
    before->nvml = loader_open(LIBRARY_NVML);
    bool is_started = call(before->nvml, "nvmlInit_v2", NULL, NULL, NULL) == NVML_SUCCESS;
    if (is_started && find_device(before, device) && read(before)) return true;
    end(before->nvml, is_started);
    return false;
}

static bool was_there(const struct context_reading *before, unsigned pid) {
    unsigned i = 0;
    while (i < before->count && before->processes[i].pid != pid) i++;
    return i < before->count;
}

/* Of those that are new, the least; 0 where there are none, or the driver does not say what they have. */
static uint64_t find_least(const struct context_reading *before, const struct context_reading *after) {
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; before->has_list && after->has_list && i < after->count; i++)
        if (!was_there(before, after->processes[i].pid) && after->processes[i].used < least)
            least = after->processes[i].used;
    return least == UINT64_MAX ? 0 : least;
}

uint64_t context_size_end(const struct context_reading *before) {
    struct context_reading after = {.nvml = before->nvml, .device = before->device};
    uint64_t bytes = 0;
    if (read(&after)) {
        bytes = find_least(before, &after);
        if (bytes == 0 && after.used > before->used) bytes = after.used - before->used;
    }
    end(before->nvml, true);
    log_line("the first context takes %llu bytes", (unsigned long long)bytes);
    return bytes > BYTES_MOST ? 0 : bytes;
}
