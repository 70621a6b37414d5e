/* See hooks.h. */
#include "front/hooks.h"

#include <stdatomic.h>
#include <stddef.h>

#include "ledger/text.h"

#define KNOWN_VERSION 13050 /* of CUDA: in a later one a base name may mean what is not known here */

/*
 * CUDA(symbol, base name, since, per thread); ADDRESS(symbol) for one whose base name has meant several; NVML(symbol), of
 * which there are no base names.
 */
#define HOOKS                                                                                 \
    CUDA(cuArray3DCreate, cuArray3DCreate, 2000, 0)                                           \
    CUDA(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0)                                        \
    CUDA(cuArrayCreate, cuArrayCreate, 2000, 0)                                               \
    CUDA(cuArrayCreate_v2, cuArrayCreate, 3020, 0)                                            \
    CUDA(cuArrayDestroy, cuArrayDestroy, 2000, 0)                                             \
    CUDA(cuCtxCreate, cuCtxCreate, 2000, 0)                                                   \
    CUDA(cuCtxCreate_v2, cuCtxCreate, 3020, 0)                                                \
    CUDA(cuCtxCreate_v3, cuCtxCreate, 11040, 0)                                               \
    CUDA(cuCtxCreate_v4, cuCtxCreate, 12050, 0)                                               \
    CUDA(cuCtxDestroy, cuCtxDestroy, 2000, 0)                                                 \
    CUDA(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0)                                              \
    CUDA(cuCtxSynchronize, cuCtxSynchronize, 2000, 0)                                         \
    CUDA(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0)                                     \
    CUDA(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0)                                \
    CUDA(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0)                       \
    CUDA(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, 0)                   \
    CUDA(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0)                           \
    CUDA(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0)                       \
    CUDA(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0)                         \
    CUDA(cuDeviceTotalMem, cuDeviceTotalMem, 2000, 0)                                         \
    CUDA(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0)                                      \
    CUDA(cuEventSynchronize, cuEventSynchronize, 2000, 0)                                     \
    CUDA(cuGetProcAddress, cuGetProcAddress, 11030, 0)                                        \
    CUDA(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0)                                     \
    CUDA(cuGetProcAddress_v2_ptsz, cuGetProcAddress, 12000, 1)                                \
    CUDA(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0)                                    \
    ADDRESS(cuGraphInstantiate)                                                               \
    ADDRESS(cuGraphInstantiateWithFlags)                                                      \
    CUDA(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 0)                \
    CUDA(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000, 1)           \
    ADDRESS(cuGraphInstantiate_v2)                                                            \
    CUDA(cuGraphLaunch, cuGraphLaunch, 10000, 0)                                              \
    CUDA(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, 1)                                         \
    CUDA(cuGraphUpload, cuGraphUpload, 11010, 0)                                              \
    CUDA(cuGraphUpload_ptsz, cuGraphUpload, 11010, 1)                                         \
    CUDA(cuInit, cuInit, 2000, 0)                                                             \
    CUDA(cuLaunch, cuLaunch, 2000, 0)                                                         \
    CUDA(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 0)                       \
    CUDA(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, 0) \
    CUDA(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 9000, 1)                  \
    CUDA(cuLaunchGrid, cuLaunchGrid, 2000, 0)                                                 \
    CUDA(cuLaunchGridAsync, cuLaunchGridAsync, 2000, 0)                                       \
    CUDA(cuLaunchKernel, cuLaunchKernel, 4000, 0)                                             \
    CUDA(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 0)                                        \
    CUDA(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060, 1)                                   \
    CUDA(cuLaunchKernel_ptsz, cuLaunchKernel, 7000, 1)                                        \
    CUDA(cuMemAlloc, cuMemAlloc, 2000, 0)                                                     \
    CUDA(cuMemAllocAsync, cuMemAllocAsync, 11020, 0)                                          \
    CUDA(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, 1)                                     \
    CUDA(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0)                          \
    CUDA(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, 1)                     \
    CUDA(cuMemAllocManaged, cuMemAllocManaged, 6000, 0)                                       \
    CUDA(cuMemAllocPitch, cuMemAllocPitch, 2000, 0)                                           \
    CUDA(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0)                                        \
    CUDA(cuMemAlloc_v2, cuMemAlloc, 3020, 0)                                                  \
    CUDA(cuMemCreate, cuMemCreate, 10020, 0)                                                  \
    CUDA(cuMemFree, cuMemFree, 2000, 0)                                                       \
    CUDA(cuMemFreeAsync, cuMemFreeAsync, 11020, 0)                                            \
    CUDA(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 1)                                       \
    CUDA(cuMemFree_v2, cuMemFree, 3020, 0)                                                    \
    CUDA(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, 0)                            \
    CUDA(cuMemGetInfo, cuMemGetInfo, 2000, 0)                                                 \
    CUDA(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0)                                              \
    CUDA(cuMemGetMemPool, cuMemGetMemPool, 13000, 0)                                          \
    CUDA(cuMemMap, cuMemMap, 10020, 0)                                                        \
    CUDA(cuMemPoolCreate, cuMemPoolCreate, 11020, 0)                                          \
    CUDA(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0)                                        \
    CUDA(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0)                                          \
    CUDA(cuMemRelease, cuMemRelease, 10020, 0)                                                \
    CUDA(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0)                  \
    CUDA(cuMemUnmap, cuMemUnmap, 10020, 0)                                                    \
    CUDA(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0)                             \
    CUDA(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0)                           \
    CUDA(cuStreamSynchronize, cuStreamSynchronize, 2000, 0)                                   \
    CUDA(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000, 1)                              \
    NVML(nvmlDeviceClearEccErrorCounts)                                                       \
    NVML(nvmlDeviceGetComputeRunningProcesses)                                                \
    NVML(nvmlDeviceGetComputeRunningProcesses_v2)                                             \
    NVML(nvmlDeviceGetComputeRunningProcesses_v3)                                             \
    NVML(nvmlDeviceGetMemoryInfo)                                                             \
    NVML(nvmlDeviceGetMemoryInfo_v2)                                                          \
    NVML(nvmlDeviceResetApplicationsClocks)                                                   \
    NVML(nvmlDeviceResetGpuLockedClocks)                                                      \
    NVML(nvmlDeviceResetMemoryLockedClocks)                                                   \
    NVML(nvmlDeviceSetApplicationsClocks)                                                     \
    NVML(nvmlDeviceSetComputeMode)                                                            \
    NVML(nvmlDeviceSetEccMode)                                                                \
    NVML(nvmlDeviceSetGpuLockedClocks)                                                        \
    NVML(nvmlDeviceSetMemoryLockedClocks)                                                     \
    NVML(nvmlDeviceSetMigMode)                                                                \
    NVML(nvmlDeviceSetPersistenceMode)                                                        \
    NVML(nvmlDeviceSetPowerManagementLimit)                                                   \
    NVML(nvmlDeviceSetPowerManagementLimit_v2)

#define CUDA(symbol, base, since, per_thread) extern char symbol##_place[] __asm__(#symbol);
#define ADDRESS(symbol) CUDA(symbol, , , )
#define NVML(symbol) CUDA(symbol, , , )
HOOKS
#undef CUDA
#undef ADDRESS
#undef NVML

/* In the order of their symbols, as strcmp has it. */
static const struct hook hooks[] = {
#define CUDA(symbol, base, since, per_thread) {#symbol, #base, symbol##_place, since, per_thread, LIBRARY_CUDA},
#define ADDRESS(symbol) {#symbol, NULL, symbol##_place, 0, 0, LIBRARY_CUDA},
#define NVML(symbol) {#symbol, NULL, symbol##_place, 0, 0, LIBRARY_NVML},
    HOOKS
#undef CUDA
#undef ADDRESS
#undef NVML
};
#define COUNT (sizeof hooks / sizeof *hooks)

static _Atomic(void *) originals[COUNT];
static atomic_int filled[LIBRARIES];

/* Once the library is there; whoever comes meanwhile finds the same. */
static void fill(enum library library) {
    if (atomic_load_explicit(&filled[library], memory_order_acquire) || !loader_library(library)) return;
    for (size_t i = 0; i < COUNT; i++)
        if (hooks[i].owner == library)
            atomic_store_explicit(&originals[i], loader_find(library, hooks[i].symbol), memory_order_relaxed);
    atomic_store_explicit(&filled[library], 1, memory_order_release);
}

const struct hook *hooks_find(const char *symbol) {
    size_t low = 0, high = COUNT;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = text_compare(symbol, hooks[middle].symbol);
        if (order == 0) return &hooks[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

void *hooks_original(const struct hook *hook) {
    fill(hook->owner);
    return atomic_load_explicit(&originals[hook - hooks], memory_order_acquire);
}

const struct hook *hooks_before(enum library library, const void *address) {
    fill(library);
    for (size_t i = 0; address && i < COUNT; i++)
        if (hooks[i].owner == library && atomic_load_explicit(&originals[i], memory_order_relaxed) == address)
            return &hooks[i];
    return NULL;
}

/* The newest that is not newer than the version; one per thread before one that is not, where that is asked for. */
const struct hook *hooks_choose(const char *base, int version, unsigned long long flags) {
    const struct hook *best = NULL;
    for (size_t i = 0; i < COUNT && version <= KNOWN_VERSION; i++) {
        const struct hook *hook = &hooks[i];
        if (!hook->base || text_compare(hook->base, base) != 0 || hook->since > version || !hooks_original(hook) ||
            (hook->per_thread && flags != HOOKS_PER_THREAD_STREAM))
            continue;
        if (!best || hook->per_thread > best->per_thread ||
            (hook->per_thread == best->per_thread && hook->since > best->since))
            best = hook;
    }
    return best;
}
