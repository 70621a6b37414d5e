/* Start, end, faults, handles, and what concerns the whole system. */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct fake_State *fake;
static pthread_once_t mapped = PTHREAD_ONCE_INIT;
static int initialised;
static uint32_t hidden[GPUS_MAX];
static struct handle handles[GPUS_MAX][1 + 2 * MIG_MAX];
static uint32_t epochs[GPUS_MAX];

static void map_state(void) {
    const char *path = getenv("NODEAGENT_FAKE_NVML");
    int descriptor = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct stat found;
    if (descriptor < 0) return;
    if (fstat(descriptor, &found) == 0 && (size_t)found.st_size >= sizeof(struct fake_State)) {
        void *memory = mmap(NULL, sizeof(struct fake_State), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        fake = memory == MAP_FAILED ? NULL : memory;
    }
    close(descriptor);
    if (fake && fake->layout_size != sizeof(struct fake_State)) fake = NULL;
    for (uint32_t gpu = 0; gpu < GPUS_MAX; gpu++)
        for (int32_t mig = -1; mig < 2 * MIG_MAX; mig++) handles[gpu][mig + 1] = (struct handle){gpu, mig};
}

/* Without a state it is a library whose driver is not loaded. */
static int has_driver(void) {
    pthread_once(&mapped, map_state);
    return fake != NULL;
}

void fake_sleep(uint64_t nanoseconds) {
    struct timespec left = {(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)};
    while (nanosleep(&left, &left)) continue;
}

/* Blocks like a driver that lost its card: no signal is taken until the fault is cleared. */
static void hang(volatile uint32_t *hangs) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (*hangs) fake_sleep(1000000);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static result play(struct fake_Fault *fault) {
    __atomic_add_fetch(&fault->calls, 1, __ATOMIC_RELAXED);
    if (fault->kill_signal) {
        signal((int)fault->kill_signal, SIG_DFL);
        raise((int)fault->kill_signal);
    }
    if (fault->delay_nanoseconds) fake_sleep(fault->delay_nanoseconds);
    if (fault->hangs) hang(&fault->hangs);
    result code = fault->code;
    if (code && fault->left && __atomic_sub_fetch(&fault->left, 1, __ATOMIC_RELAXED) == 0) fault->code = 0;
    return code;
}

static int find_function(const char *name) {
    int low = 0, high = (int)fake->function_count - 1;
    while (low <= high) {
        int middle = (low + high) / 2, order = strcmp(name, fake->functions[middle].name);
        if (order == 0) return middle;
        if (order < 0) high = middle - 1;
        else low = middle + 1;
    }
    fprintf(stderr, "fake NVML: %s is not in the function table\n", name);
    abort();
}

static result resolve(enum need need, const struct handle *handle, struct subject *subject) {
    const struct handle *first = &handles[0][0], *last = &handles[GPUS_MAX - 1][2 * MIG_MAX];
    REQUIRE(handle >= first && handle <= last, NVML_ERROR_INVALID_ARGUMENT);
    subject->index = handle->gpu;
    subject->gpu = &fake->gpus[handle->gpu];
    REQUIRE(subject->gpu->present && epochs[handle->gpu] == subject->gpu->epoch, NVML_ERROR_INVALID_ARGUMENT);
    if (handle->mig < 0) return 0;
    if (handle->mig >= MIG_MAX) {
        subject->instance = &subject->gpu->gpu_instances[handle->mig - MIG_MAX];
        REQUIRE(need == NEED_PART && subject->instance->present, NVML_ERROR_INVALID_ARGUMENT);
        return 0;
    }
    subject->mig = &subject->gpu->mig_devices[handle->mig];
    REQUIRE(subject->mig->present && subject->gpu->mig_mode == 1, NVML_ERROR_INVALID_ARGUMENT);
    return need == NEED_WHOLE ? NVML_ERROR_NOT_SUPPORTED : 0;
}

result fake_begin(int *slot, const char *name, enum need need, const void *handle, struct subject *subject) {
    REQUIRE(need == NEED_NOTHING || initialised, NVML_ERROR_UNINITIALIZED);
    REQUIRE(has_driver(), NVML_ERROR_DRIVER_NOT_LOADED);
    if (*slot < 0) *slot = find_function(name);
    struct fake_Function *function = &fake->functions[*slot];
    result found = need >= NEED_GPU ? resolve(need, handle, subject) : 0;
    result code = play(&function->faults[ANY_GPU]);
    if (!code && subject->index < GPUS_MAX) code = play(&function->faults[subject->index]);
    if (code || found) return code ? code : found;
    if (subject->gpu && subject->gpu->lost && need != NEED_CACHED) return NVML_ERROR_GPU_IS_LOST;
    return 0;
}

result fake_string(const char *text, char *buffer, uint32_t length) {
    REQUIRE(buffer, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(strlen(text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(buffer, text);
    return 0;
}

struct handle *fake_handle(uint32_t gpu, int32_t mig) {
    return &handles[gpu][mig + 1];
}

static result start(void) {
    if (initialised++ == 0)
        for (uint32_t gpu = 0; gpu < GPUS_MAX; gpu++) {
            epochs[gpu] = fake->gpus[gpu].epoch;
            hidden[gpu] = fake->lists_at_start && !fake->gpus[gpu].present;
        }
    return 0;
}

EXPORT result nvmlInitWithFlags(uint32_t flags) {
    (void)flags;
    BEGIN(NEED_NOTHING, NULL);
    return start();
}

// What bindings other than pynvml begin with.
EXPORT result nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

EXPORT result nvmlShutdown(void) {
    if (!initialised) return 0;
    BEGIN(NEED_INIT, NULL);
    initialised--;
    return 0;
}

EXPORT const char *nvmlErrorString(result code) {
    static const char *const words[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires reset",
        "GPU access blocked by the operating system",
        "Driver/library version mismatch",
        "In use by another client",
        "Insufficient Memory",
        "No data",
        "vGPU ECC not supported",
        "Insufficient Resources",
        "Invalid Frequency",
        "Argument version mismatch",
        "Requested functionality has been deprecated",
        "System is not in ready state",
        "No supported GPUs were found",
        "Resource not in correct state to perform requested operation",
    };
    return code < sizeof(words) / sizeof(*words) ? words[code] : "Unknown Error";
}

EXPORT result nvmlSystemGetDriverVersion(char *buffer, uint32_t length) {
    BEGIN(NEED_INIT, NULL);
    return fake_string(fake->driver_version, buffer, length);
}

EXPORT result nvmlSystemGetNVMLVersion(char *buffer, uint32_t length) {
    if (!has_driver()) return fake_string("13.1", buffer, length);
    BEGIN(NEED_NOTHING, NULL);
    return fake_string(fake->nvml_version, buffer, length);
}

EXPORT result nvmlSystemGetCudaDriverVersion(int32_t *version) {
    BEGIN(NEED_INIT, NULL);
    *version = (int32_t)fake->cuda_version;
    return 0;
}

EXPORT result nvmlSystemGetCudaDriverVersion_v2(int32_t *version) {
    BEGIN(NEED_INIT, NULL);
    *version = (int32_t)fake->cuda_version;
    return 0;
}

EXPORT result nvmlSystemGetProcessName(uint32_t pid, char *buffer, uint32_t length) {
    char text[32];
    BEGIN(NEED_INIT, NULL);
    snprintf(text, sizeof(text), "process-%u", pid);
    return fake_string(text, buffer, length);
}

EXPORT result nvmlSystemGetConfComputeState(struct nvmlConfComputeSystemState_t *state) {
    BEGIN(NEED_INIT, NULL);
    REQUIRE(fake->confidential_compute != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);
    *state = (struct nvmlConfComputeSystemState_t){.environment = fake->confidential_compute,
                                                   .ccFeature = fake->confidential_compute};
    return 0;
}

static int is_listed(uint32_t gpu) {
    return fake->gpus[gpu].present && !hidden[gpu];
}

EXPORT result nvmlDeviceGetCount_v2(uint32_t *count) {
    BEGIN(NEED_INIT, NULL);
    *count = 0;
    for (uint32_t gpu = 0; gpu < GPUS_MAX; gpu++) *count += is_listed(gpu);
    return 0;
}

/* Handles may be had for a GPU that fell off the bus only from before: a new one is refused. */
static result open_gpu(int slot, uint32_t gpu, void **device) {
    REQUIRE(gpu < GPUS_MAX, NVML_ERROR_NOT_FOUND);
    result code = play(&fake->functions[slot].faults[gpu]);
    if (code) return code;
    REQUIRE(!fake->gpus[gpu].lost, NVML_ERROR_GPU_IS_LOST);
    *device = fake_handle(gpu, -1);
    return 0;
}

EXPORT result nvmlDeviceGetHandleByIndex_v2(uint32_t index, void **device) {
    BEGIN(NEED_INIT, NULL);
    for (uint32_t gpu = 0; gpu < GPUS_MAX; gpu++)
        if (is_listed(gpu) && index-- == 0) return open_gpu(slot_, gpu, device);
    return NVML_ERROR_INVALID_ARGUMENT;
}

static void render_bus_id(const struct fake_Gpu *gpu, char *text, size_t length) {
    snprintf(text, length, "%08X:%02X:%02X.0", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
}

EXPORT result nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    unsigned domain, bus, slot, function = 0;
    BEGIN(NEED_INIT, NULL);
    REQUIRE(bus_id, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) >= 3, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t gpu = 0; gpu < GPUS_MAX; gpu++) {
        const struct fake_Gpu *it = &fake->gpus[gpu];
        if (it->present && it->pci_domain == domain && it->pci_bus == bus && it->pci_device == slot)
            return open_gpu(slot_, gpu, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT result nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    BEGIN(NEED_INIT, NULL);
    REQUIRE(uuid, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t gpu = 0; gpu < GPUS_MAX; gpu++) {
        struct fake_Gpu *it = &fake->gpus[gpu];
        if (!it->present) continue;
        if (!strcmp(it->uuid, uuid)) return open_gpu(slot_, gpu, device);
        for (int32_t mig = 0; it->mig_mode == 1 && mig < MIG_MAX; mig++)
            if (it->mig_devices[mig].present && !strcmp(it->mig_devices[mig].uuid, uuid)) {
                *device = fake_handle(gpu, mig);
                return 0;
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT result nvmlDeviceGetIndex(void *device, uint32_t *index) {
    BEGIN(NEED_CACHED, device);
    *index = 0;
    for (uint32_t gpu = 0; gpu < on.index; gpu++) *index += fake->gpus[gpu].present != 0;
    return 0;
}

EXPORT result nvmlDeviceGetPciInfo_v3(void *device, struct nvmlPciInfo_t *info) {
    BEGIN(NEED_CACHED, device);
    memset(info, 0, sizeof(*info));
    info->domain = on.gpu->pci_domain;
    info->bus = on.gpu->pci_bus;
    info->device = on.gpu->pci_device;
    info->pciDeviceId = on.gpu->pci_device_id;
    info->pciSubSystemId = on.gpu->pci_subsystem_id;
    render_bus_id(on.gpu, info->busId, sizeof(info->busId));
    snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:%02X.0", info->domain & 0xffffu,
             info->bus & 0xffu, info->device & 0xffu);
    return 0;
}
