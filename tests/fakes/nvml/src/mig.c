/* MIG: modes, profiles, GPU instances, compute instances. */
#include "fake.h"

GET_PAIR(nvmlDeviceGetMigMode, mig_mode, mig_pending)
GET_32(nvmlDeviceGetMaxMigDeviceCount, mig_devices_max)

EXPORT result nvmlDeviceIsMigDeviceHandle(void *device, uint32_t *is_mig) {
    BEGIN(NEED_CACHED, device);
    *is_mig = on.mig != NULL;
    return 0;
}

EXPORT result nvmlDeviceGetMigDeviceHandleByIndex(void *device, uint32_t index, void **mig) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->mig_mode != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(index < on.gpu->mig_devices_max && index < MIG_MAX, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(on.gpu->mig_mode == 1 && on.gpu->mig_devices[index].present, NVML_ERROR_NOT_FOUND);
    *mig = fake_handle(on.index, (int32_t)index);
    return 0;
}

EXPORT result nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *mig, void **device) {
    BEGIN(NEED_CACHED, mig);
    REQUIRE(on.mig, NVML_ERROR_INVALID_ARGUMENT);
    *device = fake_handle(on.index, -1);
    return 0;
}

#define GET_MIG(name, member)                           \
    EXPORT result name(void *device, uint32_t *value) { \
        BEGIN(NEED_GPU, device);                        \
        REQUIRE(on.mig, NVML_ERROR_INVALID_ARGUMENT);   \
        *value = on.mig->member;                        \
        return 0;                                       \
    }

GET_MIG(nvmlDeviceGetGpuInstanceId, gpu_instance)
GET_MIG(nvmlDeviceGetComputeInstanceId, compute_instance)

EXPORT result nvmlDeviceGetAttributes_v2(void *device, struct nvmlDeviceAttributes *attributes) {
    BEGIN(NEED_GPU, device);
    REQUIRE(on.mig, NVML_ERROR_NOT_SUPPORTED);
    *attributes = (struct nvmlDeviceAttributes){on.mig->sm_count,   on.mig->copy_engines,   on.mig->decoders,
                                                on.mig->encoders,   on.mig->jpegs,          on.mig->ofas,
                                                on.mig->gpu_slices, on.mig->compute_slices, on.mig->memory_mib};
    return 0;
}

static result find_profile(const struct fake_Gpu *gpu, uint32_t number, const struct fake_MigProfile **profile) {
    REQUIRE(gpu->mig_mode != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(number < MIG_PROFILES_MAX, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig_profiles[number].present, NVML_ERROR_NOT_SUPPORTED);
    *profile = &gpu->mig_profiles[number];
    return 0;
}

EXPORT result nvmlDeviceGetGpuInstanceProfileInfo(void *device, uint32_t number,
                                                  struct nvmlGpuInstanceProfileInfo_t *info) {
    BEGIN(NEED_WHOLE, device);
    const struct fake_MigProfile *it = NULL;
    result code = find_profile(on.gpu, number, &it);
    if (code) return code;
    *info = (struct nvmlGpuInstanceProfileInfo_t){
        it->id,       1,         it->slice_count, it->instances_max, it->sm_count, it->copy_engines, it->decoders,
        it->encoders, it->jpegs, it->ofas,        it->memory_mib};
    return 0;
}

EXPORT result nvmlDeviceGetGpuInstanceProfileInfoV(void *device, uint32_t number,
                                                   struct nvmlGpuInstanceProfileInfo_v2_t *info) {
    BEGIN(NEED_WHOLE, device);
    const struct fake_MigProfile *it = NULL;
    REQUIRE(info->version == nvmlGpuInstanceProfileInfo_v2_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    result code = find_profile(on.gpu, number, &it);
    if (code) return code;
    *info = (struct nvmlGpuInstanceProfileInfo_v2_t){info->version,
                                                     it->id,
                                                     1,
                                                     it->slice_count,
                                                     it->instances_max,
                                                     it->sm_count,
                                                     it->copy_engines,
                                                     it->decoders,
                                                     it->encoders,
                                                     it->jpegs,
                                                     it->ofas,
                                                     it->memory_mib,
                                                     ""};
    return fake_string(it->name, info->name, sizeof(info->name));
}

static const struct fake_MigProfile *profile_by_id(const struct fake_Gpu *gpu, uint32_t id) {
    for (uint32_t number = 0; number < MIG_PROFILES_MAX; number++)
        if (gpu->mig_profiles[number].present && gpu->mig_profiles[number].id == id) return &gpu->mig_profiles[number];
    return NULL;
}

EXPORT result nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *device, uint32_t id,
                                                            struct nvmlGpuInstancePlacement_t *placements,
                                                            uint32_t *count) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->mig_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    const struct fake_MigProfile *it = profile_by_id(on.gpu, id);
    REQUIRE(it, NVML_ERROR_INVALID_ARGUMENT);
    uint32_t room = placements ? *count : it->placement_count;
    *count = it->placement_count;
    REQUIRE(room >= it->placement_count, NVML_ERROR_INSUFFICIENT_SIZE);
    for (uint32_t i = 0; placements && i < it->placement_count; i++)
        placements[i] = (struct nvmlGpuInstancePlacement_t){it->placement_starts[i], it->placement_size};
    return 0;
}

static void *instance_handle(uint32_t gpu, uint32_t place) {
    return fake_handle(gpu, (int32_t)(MIG_MAX + place));
}

EXPORT result nvmlDeviceGetGpuInstanceById(void *device, uint32_t id, void **instance) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->mig_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    for (uint32_t place = 0; place < MIG_MAX; place++)
        if (on.gpu->gpu_instances[place].present && on.gpu->gpu_instances[place].id == id) {
            *instance = instance_handle(on.index, place);
            return 0;
        }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT result nvmlDeviceGetGpuInstances(void *device, uint32_t profile_id, void **instances, uint32_t *count) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->mig_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    for (uint32_t place = 0; place < MIG_MAX; place++) {
        const struct fake_GpuInstance *it = &on.gpu->gpu_instances[place];
        if (it->present && on.gpu->mig_profiles[it->profile].id == profile_id)
            instances[(*count)++] = instance_handle(on.index, place);
    }
    return 0;
}

EXPORT result nvmlGpuInstanceGetInfo(void *instance, struct nvmlGpuInstanceInfo_t *info) {
    BEGIN(NEED_PART, instance);
    REQUIRE(on.instance, NVML_ERROR_INVALID_ARGUMENT);
    const struct fake_MigProfile *profile = &on.gpu->mig_profiles[on.instance->profile];
    *info = (struct nvmlGpuInstanceInfo_t){
        fake_handle(on.index, -1), on.instance->id, profile->id, {on.instance->start, profile->placement_size}};
    return 0;
}

static int lies_in(const struct fake_MigDevice *device, const struct fake_GpuInstance *instance) {
    return device->present && device->gpu_instance == instance->id;
}

EXPORT result nvmlGpuInstanceGetComputeInstanceById(void *instance, uint32_t id, void **compute) {
    BEGIN(NEED_PART, instance);
    REQUIRE(on.instance, NVML_ERROR_INVALID_ARGUMENT);
    for (int32_t mig = 0; mig < MIG_MAX; mig++)
        if (lies_in(&on.gpu->mig_devices[mig], on.instance) && on.gpu->mig_devices[mig].compute_instance == id) {
            *compute = fake_handle(on.index, mig);
            return 0;
        }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT result nvmlGpuInstanceGetComputeInstances(void *instance, uint32_t profile_id, void **computes,
                                                 uint32_t *count) {
    BEGIN(NEED_PART, instance);
    REQUIRE(on.instance, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    for (int32_t mig = 0; mig < MIG_MAX; mig++)
        if (lies_in(&on.gpu->mig_devices[mig], on.instance) &&
            on.gpu->mig_devices[mig].compute_profile_id == profile_id)
            computes[(*count)++] = fake_handle(on.index, mig);
    return 0;
}

/* A compute instance is known by the handle of its MIG device. */
EXPORT result nvmlComputeInstanceGetInfo_v2(void *compute, struct nvmlComputeInstanceInfo_t *info) {
    BEGIN(NEED_GPU, compute);
    REQUIRE(on.mig, NVML_ERROR_INVALID_ARGUMENT);
    *info = (struct nvmlComputeInstanceInfo_t){fake_handle(on.index, -1),
                                               compute,
                                               on.mig->compute_instance,
                                               on.mig->compute_profile_id,
                                               {0, on.mig->compute_slices}};
    return 0;
}

/* Slices of compute by the enumerator of a compute instance's profile, which is its id too. */
static const uint32_t compute_slices[] = {1, 2, 3, 4, 7};

static int may_have(uint32_t whole, uint32_t part) {
    return part <= whole && !(whole == 4 && part == 3);
}

EXPORT result nvmlGpuInstanceGetComputeInstanceProfileInfo(void *instance, uint32_t number, uint32_t engines,
                                                           struct nvmlComputeInstanceProfileInfo_t *info) {
    BEGIN(NEED_PART, instance);
    REQUIRE(on.instance && engines == 0, NVML_ERROR_INVALID_ARGUMENT);
    const struct fake_MigProfile *whole = &on.gpu->mig_profiles[on.instance->profile];
    REQUIRE(number < sizeof(compute_slices) / sizeof(*compute_slices) &&
                may_have(whole->slice_count, compute_slices[number]),
            NVML_ERROR_NOT_SUPPORTED);
    uint32_t slices = compute_slices[number];
    *info = (struct nvmlComputeInstanceProfileInfo_t){number,
                                                      slices,
                                                      whole->slice_count / slices,
                                                      whole->sm_count * slices / whole->slice_count,
                                                      whole->copy_engines,
                                                      whole->decoders,
                                                      whole->encoders,
                                                      whole->jpegs,
                                                      whole->ofas};
    return 0;
}
