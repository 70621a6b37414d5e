/* Processes, their utilisation, and accounting. */
#include "fake.h"

static int belongs(const struct subject *on, const struct fake_Process *process) {
    if (!on->mig) return 1;
    return process->gpu_instance == on->mig->gpu_instance && process->compute_instance == on->mig->compute_instance;
}

/* NVML's convention: too small a buffer, also none at all, is answered with the size wanted. */
static result list(const struct subject *on, uint32_t kind, uint32_t *count, struct nvmlProcessInfo_v3_t *infos) {
    uint32_t room = infos ? *count : 0, found = 0;
    for (uint32_t i = 0; i < on->gpu->process_count; i++) {
        const struct fake_Process *it = &on->gpu->processes[i];
        if (it->kind != kind || !belongs(on, it)) continue;
        if (found < room)
            infos[found] =
                (struct nvmlProcessInfo_v3_t){it->pid, it->used_bytes, it->gpu_instance, it->compute_instance};
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : 0;
}

#define LIST(name, kind)                                                                    \
    EXPORT result name(void *device, uint32_t *count, struct nvmlProcessInfo_v3_t *infos) { \
        BEGIN(NEED_GPU, device);                                                            \
        return list(&on, kind, count, infos);                                               \
    }

LIST(nvmlDeviceGetComputeRunningProcesses_v2, 0)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 0)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2)

/* The first layout knew no instances. */
struct first_process {
    uint32_t pid;
    unsigned long long used;
};

EXPORT result nvmlDeviceGetComputeRunningProcesses(void *device, uint32_t *count, struct first_process *infos) {
    BEGIN(NEED_GPU, device);
    struct nvmlProcessInfo_v3_t all[64];
    uint32_t room = infos ? *count : 0, found = 64;
    result code = list(&on, 0, &found, all);
    if (code) return code;
    for (uint32_t i = 0; i < found && i < room; i++)
        infos[i] = (struct first_process){all[i].pid, all[i].usedGpuMemory};
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : 0;
}

static int sampled(const struct fake_Process *process, uint64_t since) {
    return process->timestamp_microseconds > since;
}

EXPORT result nvmlDeviceGetProcessUtilization(void *device, struct nvmlProcessUtilizationSample_t *samples,
                                              uint32_t *count, uint64_t since) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->mig_mode != 1, NVML_ERROR_NOT_SUPPORTED);
    uint32_t room = samples ? *count : 0, found = 0;
    for (uint32_t i = 0; i < on.gpu->process_count; i++) {
        const struct fake_Process *it = &on.gpu->processes[i];
        if (!sampled(it, since)) continue;
        if (found < room)
            samples[found] = (struct nvmlProcessUtilizationSample_t){it->pid,
                                                                     it->timestamp_microseconds,
                                                                     it->sm_percent,
                                                                     it->memory_percent,
                                                                     it->encoder_percent,
                                                                     it->decoder_percent};
        found++;
    }
    *count = found;
    if (!found) return samples ? NVML_ERROR_NOT_FOUND : 0;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : 0;
}

EXPORT result nvmlDeviceGetProcessesUtilizationInfo(void *device, struct nvmlProcessesUtilizationInfo_v1_t *info) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(info->version == ProcessesUtilizationInfo_v1_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(on.gpu->mig_mode != 1, NVML_ERROR_NOT_SUPPORTED);
    struct nvmlProcessUtilizationInfo_v1_t *samples = info->procUtilArray;
    uint32_t room = samples ? info->processSamplesCount : 0, found = 0;
    for (uint32_t i = 0; i < on.gpu->process_count; i++) {
        const struct fake_Process *it = &on.gpu->processes[i];
        if (!sampled(it, info->lastSeenTimeStamp)) continue;
        if (found < room)
            samples[found] = (struct nvmlProcessUtilizationInfo_v1_t){
                it->timestamp_microseconds, it->pid,          it->sm_percent, it->memory_percent, it->encoder_percent,
                it->decoder_percent,        it->jpeg_percent, it->ofa_percent};
        found++;
    }
    info->processSamplesCount = found;
    if (!found) return NVML_ERROR_NOT_FOUND;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : 0;
}

EXPORT result nvmlDeviceGetAccountingPids(void *device, uint32_t *count, uint32_t *pids) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->accounting_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    uint32_t room = *count;
    *count = on.gpu->process_count;
    REQUIRE(pids && room >= *count, NVML_ERROR_INSUFFICIENT_SIZE);
    for (uint32_t i = 0; i < *count; i++) pids[i] = on.gpu->processes[i].pid;
    return 0;
}

EXPORT result nvmlDeviceGetAccountingStats(void *device, uint32_t pid, struct nvmlAccountingStats_t *stats) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->accounting_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    for (uint32_t i = 0; i < on.gpu->process_count; i++) {
        const struct fake_Process *it = &on.gpu->processes[i];
        if (it->pid != pid) continue;
        *stats = (struct nvmlAccountingStats_t){.gpuUtilization = it->sm_percent,
                                                .memoryUtilization = it->memory_percent,
                                                .maxMemoryUsage = it->used_bytes,
                                                .startTime = it->timestamp_microseconds,
                                                .isRunning = 1};
        return 0;
    }
    return NVML_ERROR_NOT_FOUND;
}
