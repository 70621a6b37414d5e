/* What one GPU says of itself: identity, and what changes each second. */
#include "fake.h"

EXPORT result nvmlDeviceGetName(void *device, char *buffer, uint32_t length) {
    BEGIN(NEED_CACHED, device);
    return fake_string(on.mig ? on.mig->name : on.gpu->name, buffer, length);
}

EXPORT result nvmlDeviceGetUUID(void *device, char *buffer, uint32_t length) {
    BEGIN(NEED_CACHED, device);
    return fake_string(on.mig ? on.mig->uuid : on.gpu->uuid, buffer, length);
}

EXPORT result nvmlDeviceSetComputeMode(void *device, uint32_t mode) {
    BEGIN(NEED_GPU, device);
    REQUIRE(mode <= 3, NVML_ERROR_INVALID_ARGUMENT);
    on.gpu->compute_mode = mode;
    return 0;
}

/* Taken note of by nobody: a program is told that it was done. */
EXPORT result nvmlDeviceSetGpuLockedClocks(void *device, uint32_t lowest, uint32_t highest) {
    BEGIN(NEED_GPU, device);
    REQUIRE(lowest <= highest, NVML_ERROR_INVALID_ARGUMENT);
    return 0;
}

GET_STRING(nvmlDeviceGetSerial, serial)
GET_STRING(nvmlDeviceGetBoardPartNumber, board_part_number)
GET_STRING(nvmlDeviceGetVbiosVersion, vbios_version)
GET_STRING(nvmlDeviceGetInforomImageVersion, inforom_version)
GET_32(nvmlDeviceGetMinorNumber, minor)
GET_32(nvmlDeviceGetBrand, brand)
GET_32(nvmlDeviceGetArchitecture, architecture)
GET_32(nvmlDeviceGetNumGpuCores, core_count)
GET_32(nvmlDeviceGetPersistenceMode, persistence_mode)
GET_32(nvmlDeviceGetComputeMode, compute_mode)
GET_32(nvmlDeviceGetVirtualizationMode, virtualization_mode)
GET_32(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max)
GET_32(nvmlDeviceGetGpuMaxPcieLinkGeneration, pcie_generation_max)
GET_32(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max)
GET_32(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
GET_32(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
GET_32(nvmlDeviceGetPcieReplayCounter, pcie_replay_count)
GET_32(nvmlDeviceGetPerformanceState, performance_state)
GET_32(nvmlDeviceGetFanSpeed, fan_percent)
GET_32(nvmlDeviceGetPowerUsage, power_milliwatts)
GET_32(nvmlDeviceGetPowerManagementLimit, power_limit_milliwatts)
GET_32(nvmlDeviceGetEnforcedPowerLimit, power_limit_milliwatts)
GET_32(nvmlDeviceGetPowerManagementDefaultLimit, power_default_milliwatts)
GET_32(nvmlDeviceGetRetiredPagesPendingStatus, retired_pending)
GET_32(nvmlDeviceGetAccountingMode, accounting_mode)
GET_32(nvmlDeviceGetAccountingBufferSize, accounting_buffer)
GET_64(nvmlDeviceGetTotalEnergyConsumption, energy_millijoules)
GET_64(nvmlDeviceGetCurrentClocksEventReasons, clock_reasons)
GET_64(nvmlDeviceGetCurrentClocksThrottleReasons, clock_reasons)
GET_64(nvmlDeviceGetSupportedClocksEventReasons, clock_reasons_supported)
GET_64(nvmlDeviceGetSupportedEventTypes, events_supported)
GET_PAIR(nvmlDeviceGetEccMode, ecc_current, ecc_pending)
GET_PAIR(nvmlDeviceGetCudaComputeCapability, compute_major, compute_minor)
GET_PAIR(nvmlDeviceGetPowerManagementLimitConstraints, power_min_milliwatts, power_max_milliwatts)
GET_SAMPLED(nvmlDeviceGetEncoderUtilization, encoder_percent)
GET_SAMPLED(nvmlDeviceGetDecoderUtilization, decoder_percent)
GET_SAMPLED(nvmlDeviceGetJpgUtilization, jpeg_percent)
GET_SAMPLED(nvmlDeviceGetOfaUtilization, ofa_percent)

EXPORT result nvmlDeviceGetNumaNodeId(void *device, int32_t *node) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->numa_node >= 0, NVML_ERROR_NOT_SUPPORTED);
    *node = on.gpu->numa_node;
    return 0;
}

EXPORT result nvmlDeviceGetAddressingMode(void *device, struct nvmlDeviceAddressingMode_t *mode) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(mode->version == nvmlDeviceAddressingMode_v1_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(on.gpu->addressing_mode != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    mode->value = on.gpu->addressing_mode;
    return 0;
}

EXPORT result nvmlDeviceGetCpuAffinity(void *device, uint32_t words, unsigned long *mask) {
    BEGIN(NEED_WHOLE, device);
    for (uint32_t word = 0; word < words; word++) mask[word] = word < 16 ? on.gpu->cpu_mask[word] : 0;
    return 0;
}

EXPORT result nvmlDeviceGetTopologyCommonAncestor(void *device, void *other, uint32_t *level) {
    BEGIN(NEED_WHOLE, device);
    *level = on.gpu->topology[((struct handle *)other)->gpu];
    return 0;
}

EXPORT result nvmlDeviceGetP2PStatus(void *device, void *other, uint32_t kind, uint32_t *status) {
    (void)kind;
    BEGIN(NEED_WHOLE, device);
    *status = on.gpu->p2p[((struct handle *)other)->gpu];
    return 0;
}

EXPORT result nvmlDeviceGetUtilizationRates(void *device, struct nvmlUtilization_t *rates) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->mig_mode != 1 && on.gpu->gpu_percent != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    *rates = (struct nvmlUtilization_t){on.gpu->gpu_percent, on.gpu->memory_percent};
    return 0;
}

EXPORT result nvmlDeviceGetMemoryInfo(void *device, struct nvmlMemory_t *memory) {
    BEGIN(NEED_GPU, device);
    if (on.mig) {
        *memory = (struct nvmlMemory_t){on.mig->memory_total, on.mig->memory_free,
                                        on.mig->memory_used + on.mig->memory_reserved};
        return 0;
    }
    REQUIRE(on.gpu->memory_total != ABSENT_64, NVML_ERROR_NOT_SUPPORTED);
    *memory =
        (struct nvmlMemory_t){on.gpu->memory_total, on.gpu->memory_free, on.gpu->memory_used + on.gpu->memory_reserved};
    return 0;
}

EXPORT result nvmlDeviceGetMemoryInfo_v2(void *device, struct nvmlMemory_v2_t *memory) {
    BEGIN(NEED_GPU, device);
    REQUIRE(memory->version == nvmlMemory_v2_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(on.mig || on.gpu->memory_total != ABSENT_64, NVML_ERROR_NOT_SUPPORTED);
    memory->total = on.mig ? on.mig->memory_total : on.gpu->memory_total;
    memory->reserved = on.mig ? on.mig->memory_reserved : on.gpu->memory_reserved;
    memory->free = on.mig ? on.mig->memory_free : on.gpu->memory_free;
    memory->used = on.mig ? on.mig->memory_used : on.gpu->memory_used;
    return 0;
}

EXPORT result nvmlDeviceGetBAR1MemoryInfo(void *device, struct nvmlBAR1Memory_t *memory) {
    BEGIN(NEED_GPU, device);
    REQUIRE(on.gpu->bar1_total != ABSENT_64, NVML_ERROR_NOT_SUPPORTED);
    *memory = (struct nvmlBAR1Memory_t){on.gpu->bar1_total, on.gpu->bar1_total - on.gpu->bar1_used, on.gpu->bar1_used};
    return 0;
}

static result one_of(const uint32_t *values, uint32_t count, uint32_t which, uint32_t *value) {
    REQUIRE(which < count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(values[which] != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    *value = values[which];
    return 0;
}

EXPORT result nvmlDeviceGetClockInfo(void *device, uint32_t clock, uint32_t *value) {
    BEGIN(NEED_WHOLE, device);
    return one_of(on.gpu->clock_mhz, 4, clock, value);
}

EXPORT result nvmlDeviceGetMaxClockInfo(void *device, uint32_t clock, uint32_t *value) {
    BEGIN(NEED_WHOLE, device);
    return one_of(on.gpu->clock_max_mhz, 4, clock, value);
}

/* Nobody has set any: they are those that the GPU runs at most. */
EXPORT result nvmlDeviceGetApplicationsClock(void *device, uint32_t clock, uint32_t *value) {
    BEGIN(NEED_WHOLE, device);
    return one_of(on.gpu->clock_max_mhz, 4, clock, value);
}

EXPORT result nvmlDeviceGetTemperatureThreshold(void *device, uint32_t threshold, uint32_t *value) {
    BEGIN(NEED_WHOLE, device);
    return one_of(on.gpu->thresholds, 8, threshold, value);
}

EXPORT result nvmlDeviceGetPcieThroughput(void *device, uint32_t direction, uint32_t *value) {
    BEGIN(NEED_WHOLE, device);
    fake_sleep(20000000); /* the window over which the real one measures */
    return one_of(on.gpu->pcie_throughput_kb, 2, direction, value);
}

EXPORT result nvmlDeviceGetTemperature(void *device, uint32_t sensor, uint32_t *value) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    return one_of(&on.gpu->temperature, 1, 0, value);
}

EXPORT result nvmlDeviceGetTemperatureV(void *device, struct nvmlTemperature_v1_t *temperature) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(temperature->version == nvmlTemperature_v1_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(on.gpu->temperature != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    temperature->temperature = (int32_t)on.gpu->temperature;
    return 0;
}

EXPORT result nvmlDeviceGetMarginTemperature(void *device, struct nvmlMarginTemperature_v1_t *margin) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(margin->version == nvmlMarginTemperature_v1_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(on.gpu->margin_known, NVML_ERROR_NOT_SUPPORTED);
    margin->marginTemperature = on.gpu->margin;
    return 0;
}

EXPORT result nvmlDeviceGetViolationStatus(void *device, uint32_t policy, struct nvmlViolationTime_t *times) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(policy < 8, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(on.gpu->violation_nanoseconds[policy] != ABSENT_64, NVML_ERROR_NOT_SUPPORTED);
    *times = (struct nvmlViolationTime_t){0, on.gpu->violation_nanoseconds[policy]};
    return 0;
}

EXPORT result nvmlDeviceGetTotalEccErrors(void *device, uint32_t uncorrected, uint32_t aggregate, uint64_t *count) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->ecc_current == 1, NVML_ERROR_NOT_SUPPORTED);
    if (aggregate) *count = uncorrected ? on.gpu->ecc_uncorrected_aggregate : on.gpu->ecc_corrected_aggregate;
    else *count = uncorrected ? on.gpu->ecc_uncorrected_volatile : on.gpu->ecc_corrected_volatile;
    return 0;
}

/* All of the errors that are counted are in the device's memory. */
EXPORT result nvmlDeviceGetMemoryErrorCounter(void *device, uint32_t uncorrected, uint32_t aggregate, uint32_t place,
                                              uint64_t *count) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(uncorrected < 2 && aggregate < 2 && place < 8, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(on.gpu->ecc_current == 1, NVML_ERROR_NOT_SUPPORTED);
    const uint64_t counts[2][2] = {{on.gpu->ecc_corrected_volatile, on.gpu->ecc_corrected_aggregate},
                                   {on.gpu->ecc_uncorrected_volatile, on.gpu->ecc_uncorrected_aggregate}};
    *count = place == 2 ? counts[uncorrected][aggregate] : 0;
    return 0;
}

EXPORT result nvmlDeviceGetSramEccErrorStatus(void *device, struct nvmlEccSramErrorStatus_v1_t *status) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(status->version == nvmlEccSramErrorStatus_v1_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(on.gpu->sram_threshold_exceeded != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    status->bThresholdExceeded = on.gpu->sram_threshold_exceeded;
    return 0;
}

EXPORT result nvmlDeviceGetUnrepairableMemoryFlag_v1(void *device, struct nvmlUnrepairableMemoryStatus_v1_t *status) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->memory_unrepairable != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    status->bUnrepairableMemory = on.gpu->memory_unrepairable;
    return 0;
}

EXPORT result nvmlDeviceValidateInforom(void *device) {
    BEGIN(NEED_WHOLE, device);
    return on.gpu->inforom_corrupt ? NVML_ERROR_CORRUPTED_INFOROM : 0;
}

EXPORT result nvmlDeviceGetRemappedRows(void *device, uint32_t *correctable, uint32_t *uncorrectable, uint32_t *pending,
                                        uint32_t *failed) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->remapped_correctable != ABSENT_32 && on.gpu->mig_mode != 1, NVML_ERROR_NOT_SUPPORTED);
    *correctable = on.gpu->remapped_correctable;
    *uncorrectable = on.gpu->remapped_uncorrectable;
    *pending = on.gpu->remapped_pending;
    *failed = on.gpu->remapped_failed;
    return 0;
}

EXPORT result nvmlDeviceGetRowRemapperHistogram(void *device, struct nvmlRowRemapperHistogramValues *histogram) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->remapped_correctable != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    *histogram = (struct nvmlRowRemapperHistogramValues){.max = 640 - on.gpu->remapped_uncorrectable,
                                                         .partial = on.gpu->remapped_uncorrectable};
    return 0;
}

EXPORT result nvmlDeviceGetRetiredPages(void *device, uint32_t cause, uint32_t *count, uint64_t *pages) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->retired_single_count != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    uint32_t retired = cause ? on.gpu->retired_double_count : on.gpu->retired_single_count, room = *count;
    *count = retired;
    if (!pages) return retired ? NVML_ERROR_INSUFFICIENT_SIZE : 0;
    REQUIRE(retired <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    for (uint32_t page = 0; page < retired; page++) pages[page] = 0x10000u * (page + 1);
    return 0;
}

/* A structure that is copied whole brings along whatever lay in its gaps. */
#define PUT_STATE(info)                                                                               \
    ((info)->state = (uint8_t)on.gpu->fabric_state, memset((info)->gap_, 0xa5, sizeof((info)->gap_)))

EXPORT result nvmlDeviceGetGpuFabricInfo(void *device, struct nvmlGpuFabricInfo_t *info) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->fabric_state != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    memcpy(info->clusterUuid, on.gpu->fabric_cluster, 16);
    info->status = on.gpu->fabric_status;
    info->cliqueId = on.gpu->fabric_clique;
    PUT_STATE(info);
    return 0;
}

EXPORT result nvmlDeviceGetGpuFabricInfoV(void *device, struct nvmlGpuFabricInfo_v3_t *info) {
    BEGIN(NEED_WHOLE, device);
    uint32_t version = info->version >> 24;
    REQUIRE(version >= 2 && version <= on.gpu->fabric_version_max, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(version > 2 || info->version == nvmlGpuFabricInfo_v2_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(version < 3 || info->version == nvmlGpuFabricInfo_v3_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(on.gpu->fabric_state != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    memcpy(info->clusterUuid, on.gpu->fabric_cluster, 16);
    info->status = on.gpu->fabric_status;
    info->cliqueId = on.gpu->fabric_clique;
    PUT_STATE(info);
    info->healthMask = on.gpu->fabric_health_mask;
    if (version >= 3) info->healthSummary = (uint8_t)on.gpu->fabric_health_summary;
    return 0;
}

EXPORT result nvmlDeviceGetGridLicensableFeatures_v4(void *device, struct nvmlGridLicensableFeatures_v4_t *features) {
    BEGIN(NEED_WHOLE, device);
    memset(features, 0, sizeof(*features));
    features->isGridLicenseSupported = (int32_t)on.gpu->license_supported;
    features->licensableFeaturesCount = on.gpu->license_supported ? 1 : 0;
    features->gridLicensableFeatures[0].featureCode = 1;
    features->gridLicensableFeatures[0].featureState = on.gpu->license_active;
    return 0;
}

EXPORT result nvmlDeviceGetActiveVgpus(void *device, uint32_t *count, uint32_t *vgpus) {
    BEGIN(NEED_WHOLE, device);
    uint32_t room = *count;
    REQUIRE(on.gpu->virtualization_mode == 3, NVML_ERROR_NOT_SUPPORTED);
    *count = on.gpu->vgpu_count;
    if (!*count) return 0;
    REQUIRE(vgpus && room >= *count, NVML_ERROR_INSUFFICIENT_SIZE);
    for (uint32_t vgpu = 0; vgpu < *count; vgpu++) vgpus[vgpu] = vgpu + 1;
    return 0;
}
