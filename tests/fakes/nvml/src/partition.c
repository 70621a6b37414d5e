/* Cutting a GPU: the mode, GPU instances, compute instances, by the rules of placement, and never against those inside. */
#include "fake.h"

#include <stdio.h>

static int is_used(const struct fake_Gpu *gpu, const struct fake_MigDevice *device) {
    for (uint32_t at = 0; at < gpu->process_count; at++)
        if (!device || (gpu->processes[at].gpu_instance == device->gpu_instance &&
                        gpu->processes[at].compute_instance == device->compute_instance))
            return 1;
    return 0;
}

static int has_instances(const struct fake_Gpu *gpu) {
    for (uint32_t place = 0; place < MIG_MAX; place++)
        if (gpu->gpu_instances[place].present) return 1;
    return 0;
}

/* Before Hopper the mode waits for a reset; later it waits only for those who use the GPU. */
EXPORT result nvmlDeviceSetMigMode(void *device, uint32_t mode, uint32_t *status) {
    BEGIN(NEED_WHOLE, device);
    *status = 0;
    REQUIRE(on.gpu->mig_mode != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(mode == 1 || !has_instances(on.gpu), NVML_ERROR_IN_USE);
    on.gpu->mig_pending = mode;
    if (mode == on.gpu->mig_mode || on.gpu->mig_mode_waits) return 0;
    if (is_used(on.gpu, NULL)) *status = NVML_ERROR_IN_USE;
    else on.gpu->mig_mode = mode;
    return 0;
}

static uint32_t find_profile(const struct fake_Gpu *gpu, uint32_t id) {
    uint32_t number = 0;
    while (number < MIG_PROFILES_MAX && !(gpu->mig_profiles[number].present && gpu->mig_profiles[number].id == id))
        number++;
    return number;
}

static int can_start(const struct fake_MigProfile *profile, uint32_t start) {
    for (uint32_t at = 0; at < profile->placement_count; at++)
        if (profile->placement_starts[at] == start) return 1;
    return 0;
}

static int has_room(const struct fake_Gpu *gpu, uint32_t number, uint32_t start) {
    const struct fake_MigProfile *profile = &gpu->mig_profiles[number];
    uint32_t slices = profile->slice_count, alike = 0;
    for (uint32_t place = 0; place < MIG_MAX; place++) {
        const struct fake_GpuInstance *it = &gpu->gpu_instances[place];
        if (!it->present) continue;
        if (start < it->start + gpu->mig_profiles[it->profile].placement_size &&
            it->start < start + profile->placement_size)
            return 0;
        slices += gpu->mig_profiles[it->profile].slice_count;
        alike += it->profile == number;
    }
    return can_start(profile, start) && slices <= gpu->mig_slices && alike < profile->instances_max;
}

static uint32_t free_id(const struct fake_Gpu *gpu) {
    for (uint32_t id = 1;; id++) {
        int taken = 0;
        for (uint32_t place = 0; place < MIG_MAX; place++)
            taken |= gpu->gpu_instances[place].present && gpu->gpu_instances[place].id == id;
        if (!taken) return id;
    }
}

static result create(struct subject on, uint32_t number, uint32_t start, void **instance) {
    for (uint32_t place = 0; place < MIG_MAX; place++) {
        struct fake_GpuInstance *it = &on.gpu->gpu_instances[place];
        if (it->present) continue;
        *it = (struct fake_GpuInstance){1, free_id(on.gpu), number, start};
        *instance = fake_handle(on.index, (int32_t)(MIG_MAX + place));
        return 0;
    }
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

EXPORT result nvmlDeviceCreateGpuInstanceWithPlacement(void *device, uint32_t id,
                                                       const struct nvmlGpuInstancePlacement_t *place,
                                                       void **instance) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->mig_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    uint32_t number = find_profile(on.gpu, id);
    REQUIRE(number < MIG_PROFILES_MAX && place->size == on.gpu->mig_profiles[number].placement_size,
            NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(has_room(on.gpu, number, place->start), NVML_ERROR_INSUFFICIENT_RESOURCES);
    return create(on, number, place->start, instance);
}

EXPORT result nvmlDeviceCreateGpuInstance(void *device, uint32_t id, void **instance) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(on.gpu->mig_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    uint32_t number = find_profile(on.gpu, id);
    REQUIRE(number < MIG_PROFILES_MAX, NVML_ERROR_INVALID_ARGUMENT);
    const struct fake_MigProfile *profile = &on.gpu->mig_profiles[number];
    for (uint32_t at = 0; at < profile->placement_count; at++)
        if (has_room(on.gpu, number, profile->placement_starts[at]))
            return create(on, number, profile->placement_starts[at], instance);
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

EXPORT result nvmlGpuInstanceDestroy(void *instance) {
    BEGIN(NEED_PART, instance);
    REQUIRE(on.instance, NVML_ERROR_INVALID_ARGUMENT);
    for (int32_t mig = 0; mig < MIG_MAX; mig++)
        REQUIRE(!(on.gpu->mig_devices[mig].present && on.gpu->mig_devices[mig].gpu_instance == on.instance->id),
                NVML_ERROR_IN_USE);
    on.instance->present = 0;
    return 0;
}

static void name_device(const struct fake_Gpu *gpu, const struct fake_MigProfile *profile,
                        struct fake_MigDevice *device) {
    const char *short_name = strncmp(profile->name, "MIG ", 4) ? profile->name : profile->name + 4;
    if (device->compute_slices == profile->slice_count)
        snprintf(device->name, sizeof(device->name), "%.40s MIG %.40s", gpu->name, short_name);
    else
        snprintf(device->name, sizeof(device->name), "%.40s MIG %uc.%.40s", gpu->name, device->compute_slices,
                 short_name);
    snprintf(device->uuid, sizeof(device->uuid), "MIG-%08x-%.27s", gpu->mig_serial,
             gpu->uuid + strlen("GPU-00000000-"));
}

static void fill_device(struct fake_Gpu *gpu, const struct fake_GpuInstance *instance, uint32_t compute, uint32_t id,
                        struct fake_MigDevice *device) {
    static const uint32_t slices[] = {1, 2, 3, 4, 7};
    const struct fake_MigProfile *profile = &gpu->mig_profiles[instance->profile];
    *device = (struct fake_MigDevice){.present = 1,
                                      .gpu_instance = instance->id,
                                      .compute_instance = id,
                                      .gpu_profile_id = profile->id,
                                      .compute_profile_id = compute,
                                      .placement_start = instance->start,
                                      .placement_size = profile->placement_size,
                                      .sm_count = profile->sm_count * slices[compute] / profile->slice_count,
                                      .copy_engines = profile->copy_engines,
                                      .decoders = profile->decoders,
                                      .encoders = profile->encoders,
                                      .jpegs = profile->jpegs,
                                      .ofas = profile->ofas,
                                      .gpu_slices = profile->slice_count,
                                      .compute_slices = slices[compute],
                                      .memory_mib = profile->memory_mib,
                                      .memory_total = profile->memory_mib << 20,
                                      .memory_free = (profile->memory_mib - 16) << 20,
                                      .memory_reserved = 16 << 20};
    gpu->mig_serial++;
    name_device(gpu, profile, device);
    for (uint32_t metric = 0; metric < GPM_MAX; metric++) device->gpm[metric] = gpu->gpm[metric];
}

EXPORT result nvmlGpuInstanceCreateComputeInstance(void *instance, uint32_t profile_id, void **compute) {
    static const uint32_t slices[] = {1, 2, 3, 4, 7};
    BEGIN(NEED_PART, instance);
    REQUIRE(on.instance && profile_id < sizeof(slices) / sizeof(*slices), NVML_ERROR_INVALID_ARGUMENT);
    uint32_t used = 0, id = 0, whole = on.gpu->mig_profiles[on.instance->profile].slice_count;
    int32_t room = -1;
    for (int32_t mig = 0; mig < MIG_MAX; mig++) {
        const struct fake_MigDevice *it = &on.gpu->mig_devices[mig];
        if (!it->present && room < 0) room = mig;
        if (it->present && it->gpu_instance == on.instance->id) used += it->compute_slices;
    }
    for (int32_t mig = 0; mig < MIG_MAX; mig++) {
        const struct fake_MigDevice *it = &on.gpu->mig_devices[mig];
        if (it->present && it->gpu_instance == on.instance->id && it->compute_instance == id) id++, mig = -1;
    }
    REQUIRE(room >= 0 && used + slices[profile_id] <= whole, NVML_ERROR_INSUFFICIENT_RESOURCES);
    fill_device(on.gpu, on.instance, profile_id, id, &on.gpu->mig_devices[room]);
    *compute = fake_handle(on.index, room);
    return 0;
}

EXPORT result nvmlComputeInstanceDestroy(void *compute) {
    BEGIN(NEED_GPU, compute);
    REQUIRE(on.mig, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!is_used(on.gpu, on.mig), NVML_ERROR_IN_USE);
    on.mig->present = 0;
    return 0;
}
