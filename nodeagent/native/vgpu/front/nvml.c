/* See nvml.h. */
#include "front/nvml.h"

#include <string.h>

#include "ledger/files.h"
#include "ledger/ledger.h"

#define UUID_TEXT 96

typedef nvml_result (*any)(nvml_device device, uint64_t first, uint64_t second, uint64_t third);

/* A library that was not started, where there is none. */
static nvml_result call(const char *name, nvml_device device, uint64_t first, uint64_t second, uint64_t third) {
    any function = (any)loader_find(LIBRARY_NVML, name);
    return function ? function(device, first, second, third) : NVML_UNINITIALIZED;
}

static int parse_digit(char text) {
    return text >= '0' && text <= '9' ? text - '0' : text >= 'a' && text <= 'f' ? text - 'a' + 10 : -1;
}

/* After `GPU-` or `MIG-`; older drivers name MIG devices otherwise, and those have no slot. */
static bool parse_uuid(const char *text, uint8_t uuid[VGPU_UUID_BYTES]) {
    unsigned digits = 0;
    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0) return false;
    for (text += 4; *text; text++) {
        int digit = parse_digit(*text);
        if (*text == '-') continue;
        if (digit < 0 || digits == 2 * VGPU_UUID_BYTES) return false;
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] << 4 | digit : digit);
        digits++;
    }
    return digits == 2 * VGPU_UUID_BYTES;
}

/* Of a device that this container has a part of; FILES_NO_SLOT for others, and where nothing is limited. */
static unsigned find_slot(nvml_device device) {
    char text[UUID_TEXT] = "";
    uint8_t uuid[VGPU_UUID_BYTES];
    if (files_look() != VGPU_LIMITING ||
        call("nvmlDeviceGetUUID", device, (uintptr_t)text, sizeof text, 0) != NVML_SUCCESS)
        return FILES_NO_SLOT;
    text[sizeof text - 1] = '\0';
    return parse_uuid(text, uuid) ? files_find_slot(uuid) : FILES_NO_SLOT;
}

static uint64_t find_limit(nvml_device device, unsigned *slot) {
    *slot = find_slot(device);
    return *slot == FILES_NO_SLOT ? FILES_UNLIMITED : files_memory_limit(*slot);
}

static unsigned long long lower(unsigned long long a, unsigned long long b) {
    return a < b ? a : b;
}

nvml_result nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory) {
    nvml_result result = call("nvmlDeviceGetMemoryInfo", device, (uintptr_t)memory, 0, 0);
    unsigned slot;
    uint64_t limit = result == NVML_SUCCESS ? find_limit(device, &slot) : FILES_UNLIMITED;
    if (limit != FILES_UNLIMITED && memory) {
        memory->total = lower(memory->total, limit);
        memory->used = lower(memory->total, ledger_used(slot));
        memory->free = lower(memory->free, memory->total - memory->used);
    }
    return result;
}

/* What the driver keeps for itself is nobody's part. */
nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory) {
    nvml_result result = call("nvmlDeviceGetMemoryInfo_v2", device, (uintptr_t)memory, 0, 0);
    unsigned slot;
    uint64_t limit = result == NVML_SUCCESS ? find_limit(device, &slot) : FILES_UNLIMITED;
    if (limit != FILES_UNLIMITED && memory) {
        memory->total = lower(memory->total, limit);
        memory->reserved = 0;
        memory->used = lower(memory->total, ledger_used(slot));
        memory->free = lower(memory->free, memory->total - memory->used);
    }
    return result;
}

/* One of an answer; the two layouts begin with the same fields. */
static void fill(char *infos, unsigned index, size_t bytes, const struct ledger_holder *holder) {
    struct nvml_process info = {holder->pid, holder->used, UINT32_MAX, UINT32_MAX};
    memcpy(infos + index * bytes, &info, bytes);
}

/* Those of this container, by the numbers that they have in it: too little room is answered with what is wanted. */
static nvml_result list(const char *name, nvml_device device, unsigned *count, void *infos, size_t bytes) {
    struct ledger_holder holders[VGPU_PROCESSES];
    unsigned slot, room = infos && count ? *count : 0;
    if (find_limit(device, &slot) == FILES_UNLIMITED || !count)
        return call(name, device, (uintptr_t)count, (uintptr_t)infos, 0);
    unsigned found = ledger_list(slot, holders);
    for (unsigned i = 0; i < found && i < room; i++) fill(infos, i, bytes, &holders[i]);
    *count = found;
    return found > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvml_result nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count, struct nvml_process_v1 *infos) {
    return list(__func__, device, count, infos, sizeof *infos);
}

nvml_result nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned *count, struct nvml_process *infos) {
    return list(__func__, device, count, infos, sizeof *infos);
}

nvml_result nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count, struct nvml_process *infos) {
    return list(__func__, device, count, infos, sizeof *infos);
}

#define NVML_SETTER(name)                                                                                              \
    nvml_result name(nvml_device device, uint64_t first, uint64_t second, uint64_t third) {                            \
        return find_slot(device) == FILES_NO_SLOT ? call(__func__, device, first, second, third) : NVML_NO_PERMISSION; \
    }
NVML_SETTERS
