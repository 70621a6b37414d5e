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
  EXPORT result name(void *device, uint32_t *value) {   \
    BEGIN(NEED_GPU, device);                            \
    REQUIRE(on.mig, NVML_ERROR_INVALID_ARGUMENT);       \
    *value = on.mig->member;                            \
    return 0;                                           \
  }

GET_MIG(nvmlDeviceGetGpuInstanceId, gpu_instance)
GET_MIG(nvmlDeviceGetComputeInstanceId, compute_instance)

EXPORT result nvmlDeviceGetAttributes_v2(void *device, struct nvmlDeviceAttributes *attributes) {
  BEGIN(NEED_GPU, device);
  REQUIRE(on.mig, NVML_ERROR_NOT_SUPPORTED);
  *attributes = (struct nvmlDeviceAttributes){on.mig->sm_count, on.mig->copy_engines, on.mig->decoders,
                                              on.mig->encoders, on.mig->jpegs,        on.mig->ofas,
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

EXPORT result nvmlDeviceGetGpuInstanceProfileInfo(void *device, uint32_t number, struct nvmlGpuInstanceProfileInfo_t *info) {
  BEGIN(NEED_WHOLE, device);
  const struct fake_MigProfile *it = NULL;
  result code = find_profile(on.gpu, number, &it);
  if (code) return code;
  *info = (struct nvmlGpuInstanceProfileInfo_t){it->id,           1,            it->slice_count, it->instances_max, it->sm_count, it->copy_engines,
                                                it->decoders, it->encoders, it->jpegs,       it->ofas,          it->memory_mib};
  return 0;
}

EXPORT result nvmlDeviceGetGpuInstanceProfileInfoV(void *device, uint32_t number, struct nvmlGpuInstanceProfileInfo_v2_t *info) {
  BEGIN(NEED_WHOLE, device);
  const struct fake_MigProfile *it = NULL;
  REQUIRE(info->version == nvmlGpuInstanceProfileInfo_v2_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  result code = find_profile(on.gpu, number, &it);
  if (code) return code;
  *info = (struct nvmlGpuInstanceProfileInfo_v2_t){info->version,    it->id,       1,            it->slice_count, it->instances_max, it->sm_count,
                                                   it->copy_engines, it->decoders, it->encoders, it->jpegs,       it->ofas,          it->memory_mib, ""};
  return fake_string(it->name, info->name, sizeof(info->name));
}

static const struct fake_MigProfile *profile_by_id(const struct fake_Gpu *gpu, uint32_t id) {
  for (uint32_t number = 0; number < MIG_PROFILES_MAX; number++)
    if (gpu->mig_profiles[number].present && gpu->mig_profiles[number].id == id) return &gpu->mig_profiles[number];
  return NULL;
}

EXPORT result nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *device, uint32_t id, struct nvmlGpuInstancePlacement_t *placements, uint32_t *count) {
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

/* GPU and compute instances are known by the handle of one MIG device that lies in them. */
EXPORT result nvmlDeviceGetGpuInstanceById(void *device, uint32_t id, void **instance) {
  BEGIN(NEED_WHOLE, device);
  REQUIRE(on.gpu->mig_mode == 1, NVML_ERROR_NOT_SUPPORTED);
  for (int32_t mig = 0; mig < MIG_MAX; mig++)
    if (on.gpu->mig_devices[mig].present && on.gpu->mig_devices[mig].gpu_instance == id) {
      *instance = fake_handle(on.index, mig);
      return 0;
    }
  return NVML_ERROR_NOT_FOUND;
}

EXPORT result nvmlGpuInstanceGetInfo(void *instance, struct nvmlGpuInstanceInfo_t *info) {
  BEGIN(NEED_GPU, instance);
  REQUIRE(on.mig, NVML_ERROR_INVALID_ARGUMENT);
  *info = (struct nvmlGpuInstanceInfo_t){fake_handle(on.index, -1),
                                         on.mig->gpu_instance,
                                         on.mig->gpu_profile_id,
                                         {on.mig->placement_start, on.mig->placement_size}};
  return 0;
}

EXPORT result nvmlGpuInstanceGetComputeInstanceById(void *instance, uint32_t id, void **compute) {
  BEGIN(NEED_GPU, instance);
  REQUIRE(on.mig, NVML_ERROR_INVALID_ARGUMENT);
  for (int32_t mig = 0; mig < MIG_MAX; mig++) {
    const struct fake_MigDevice *it = &on.gpu->mig_devices[mig];
    if (!it->present || it->gpu_instance != on.mig->gpu_instance || it->compute_instance != id) continue;
    *compute = fake_handle(on.index, mig);
    return 0;
  }
  return NVML_ERROR_NOT_FOUND;
}

EXPORT result nvmlComputeInstanceGetInfo_v2(void *compute, struct nvmlComputeInstanceInfo_t *info) {
  BEGIN(NEED_GPU, compute);
  REQUIRE(on.mig, NVML_ERROR_INVALID_ARGUMENT);
  *info = (struct nvmlComputeInstanceInfo_t){fake_handle(on.index, -1), compute, on.mig->compute_instance, on.mig->compute_profile_id, {0, on.mig->compute_slices}};
  return 0;
}
