/*
 * What NVML tells a program of memory and processes, within its part of each device, and what it lets it set. Declared here
 * with NVML's own layout, since NVML's header is not needed.
 */
#ifndef VGPU_NVML_H
#define VGPU_NVML_H

#include <stddef.h>
#include <stdint.h>

#include "front/hooks.h"

enum { NVML_SUCCESS = 0, NVML_UNINITIALIZED = 1, NVML_NO_PERMISSION = 4, NVML_INSUFFICIENT_SIZE = 7 };

typedef int nvml_result;
typedef void *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used;
};

/* Also that of the third version. */
struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

_Static_assert(sizeof(struct nvml_memory) == 24 && sizeof(struct nvml_memory_v2) == 40, "as in NVML's own ABI");
_Static_assert(sizeof(struct nvml_process_v1) == 16 && sizeof(struct nvml_process) == 24, "as in NVML's own ABI");

HOOK nvml_result nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory);
HOOK nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory);
HOOK nvml_result nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count,
                                                      struct nvml_process_v1 *infos);
HOOK nvml_result nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned *count,
                                                         struct nvml_process *infos);
HOOK nvml_result nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count,
                                                         struct nvml_process *infos);

/* What would change the device for others too. Each has up to three further arguments, which are passed on as they came. */
#define NVML_SETTERS                                  \
    NVML_SETTER(nvmlDeviceClearEccErrorCounts)        \
    NVML_SETTER(nvmlDeviceResetApplicationsClocks)    \
    NVML_SETTER(nvmlDeviceResetGpuLockedClocks)       \
    NVML_SETTER(nvmlDeviceResetMemoryLockedClocks)    \
    NVML_SETTER(nvmlDeviceSetApplicationsClocks)      \
    NVML_SETTER(nvmlDeviceSetComputeMode)             \
    NVML_SETTER(nvmlDeviceSetEccMode)                 \
    NVML_SETTER(nvmlDeviceSetGpuLockedClocks)         \
    NVML_SETTER(nvmlDeviceSetMemoryLockedClocks)      \
    NVML_SETTER(nvmlDeviceSetMigMode)                 \
    NVML_SETTER(nvmlDeviceSetPersistenceMode)         \
    NVML_SETTER(nvmlDeviceSetPowerManagementLimit)    \
    NVML_SETTER(nvmlDeviceSetPowerManagementLimit_v2)

#define NVML_SETTER(name) HOOK nvml_result name(nvml_device device, uint64_t first, uint64_t second, uint64_t third);
NVML_SETTERS
#undef NVML_SETTER

#endif
