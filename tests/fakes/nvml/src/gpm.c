/* Performance counters in two samples; a metric is the mean between them, and the fake's means are what the tests set. */
#include "fake.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

struct gpm_sample {
    uint32_t gpu, epoch, instance, taken;
    uint64_t nanoseconds;
    double values[GPM_MAX];
};

EXPORT result nvmlGpmQueryDeviceSupport(void *device, struct nvmlGpmSupport_t *support) {
    BEGIN(NEED_GPU, device);
    REQUIRE(support->version == NVML_GPM_SUPPORT_VERSION_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    support->isSupportedDevice = on.gpu->gpm_supported;
    return 0;
}

EXPORT result nvmlGpmSampleAlloc(struct gpm_sample **sample) {
    BEGIN(NEED_INIT, NULL);
    *sample = calloc(1, sizeof(**sample));
    return *sample ? 0 : NVML_ERROR_MEMORY;
}

EXPORT result nvmlGpmSampleFree(struct gpm_sample *sample) {
    BEGIN(NEED_INIT, NULL);
    free(sample);
    return 0;
}

static result take(struct gpm_sample *sample, const struct subject *on, uint32_t instance, const double *values) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    REQUIRE(on->gpu->gpm_supported, NVML_ERROR_NOT_SUPPORTED);
    sample->gpu = on->index;
    sample->epoch = on->gpu->epoch;
    sample->instance = instance;
    sample->taken = 1;
    sample->nanoseconds = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    memcpy(sample->values, values, sizeof(sample->values));
    return 0;
}

EXPORT result nvmlGpmSampleGet(void *device, struct gpm_sample *sample) {
    BEGIN(NEED_GPU, device);
    return take(sample, &on, on.mig ? on.mig->gpu_instance : 0xFFFFFFFFu, on.mig ? on.mig->gpm : on.gpu->gpm);
}

EXPORT result nvmlGpmMigSampleGet(void *device, uint32_t instance, struct gpm_sample *sample) {
    BEGIN(NEED_WHOLE, device);
    for (uint32_t mig = 0; on.gpu->mig_mode == 1 && mig < MIG_MAX; mig++)
        if (on.gpu->mig_devices[mig].present && on.gpu->mig_devices[mig].gpu_instance == instance)
            return take(sample, &on, instance, on.gpu->mig_devices[mig].gpm);
    return NVML_ERROR_NOT_FOUND;
}

EXPORT result nvmlGpmMetricsGet(struct nvmlGpmMetricsGet_t *request) {
    BEGIN(NEED_INIT, NULL);
    const struct gpm_sample *before = request->sample1, *after = request->sample2;
    REQUIRE(request->version == NVML_GPM_METRICS_GET_VERSION_VERSION_WORD, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(before && after && before->taken && after->taken, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(before->gpu == after->gpu && before->epoch == after->epoch && before->instance == after->instance,
            NVML_ERROR_INVALID_ARGUMENT);
    int too_close = after->nanoseconds - before->nanoseconds < 100000000u;
    for (uint32_t i = 0; i < request->numMetrics; i++) {
        struct nvmlGpmMetric_t *metric = &request->metrics[i];
        double value = metric->metricId < GPM_MAX ? after->values[metric->metricId] : -1.0;
        metric->value = too_close ? (double)NAN : value;
        metric->nvmlReturn = value < 0 ? NVML_ERROR_NOT_SUPPORTED : 0;
    }
    return 0;
}
