/*
 * Entry points by base name, version and flags. ENTRY(base, symbol, since, per thread): from which version of CUDA a
 * program means this symbol by the base name, and whether only where it asks for the stream per thread.
 */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define PER_THREAD_STREAM 2u
#define FLAGS_MOST 3u

enum status { FOUND = 0, NO_SUCH_SYMBOL = 1, VERSION_TOO_LOW = 2 };

#define ENTRIES                                                                                \
    ENTRY(cuInit, cuInit, 2000, 0)                                                             \
    ENTRY(cuDriverGetVersion, cuDriverGetVersion, 2020, 0)                                     \
    ENTRY(cuDeviceGetCount, cuDeviceGetCount, 2000, 0)                                         \
    ENTRY(cuDeviceGet, cuDeviceGet, 2000, 0)                                                   \
    ENTRY(cuDeviceGetName, cuDeviceGetName, 2000, 0)                                           \
    ENTRY(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, 0)                                 \
    ENTRY(cuDeviceGetUuid, cuDeviceGetUuid, 9020, 0)                                           \
    ENTRY(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, 0)                                       \
    ENTRY(cuDeviceTotalMem, cuDeviceTotalMem, 2000, 0)                                         \
    ENTRY(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, 0)                                      \
    ENTRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0)                         \
    ENTRY(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0)                       \
    ENTRY(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, 0)                   \
    ENTRY(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0)                           \
    ENTRY(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, 0)                       \
    ENTRY(cuCtxCreate, cuCtxCreate, 2000, 0)                                                   \
    ENTRY(cuCtxCreate, cuCtxCreate_v2, 3020, 0)                                                \
    ENTRY(cuCtxCreate, cuCtxCreate_v3, 11040, 0)                                               \
    ENTRY(cuCtxCreate, cuCtxCreate_v4, 12050, 0)                                               \
    ENTRY(cuCtxDestroy, cuCtxDestroy, 2000, 0)                                                 \
    ENTRY(cuCtxDestroy, cuCtxDestroy_v2, 4000, 0)                                              \
    ENTRY(cuCtxGetCurrent, cuCtxGetCurrent, 4000, 0)                                           \
    ENTRY(cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0)                                           \
    ENTRY(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, 0)                                      \
    ENTRY(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, 0)                                        \
    ENTRY(cuCtxGetDevice, cuCtxGetDevice, 2000, 0)                                             \
    ENTRY(cuMemAlloc, cuMemAlloc, 2000, 0)                                                     \
    ENTRY(cuMemAlloc, cuMemAlloc_v2, 3020, 0)                                                  \
    ENTRY(cuMemAllocPitch, cuMemAllocPitch, 2000, 0)                                           \
    ENTRY(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, 0)                                        \
    ENTRY(cuMemAllocManaged, cuMemAllocManaged, 6000, 0)                                       \
    ENTRY(cuMemFree, cuMemFree, 2000, 0)                                                       \
    ENTRY(cuMemFree, cuMemFree_v2, 3020, 0)                                                    \
    ENTRY(cuMemAllocAsync, cuMemAllocAsync, 11020, 0)                                          \
    ENTRY(cuMemAllocAsync, cuMemAllocAsync_ptsz, 11020, 1)                                     \
    ENTRY(cuMemFreeAsync, cuMemFreeAsync, 11020, 0)                                            \
    ENTRY(cuMemFreeAsync, cuMemFreeAsync_ptsz, 11020, 1)                                       \
    ENTRY(cuMemsetD8, cuMemsetD8, 2000, 0)                                                     \
    ENTRY(cuMemsetD8, cuMemsetD8_v2, 3020, 0)                                                  \
    ENTRY(cuMemsetD8, cuMemsetD8_v2_ptds, 7000, 1)                                             \
    ENTRY(cuMemGetInfo, cuMemGetInfo, 2000, 0)                                                 \
    ENTRY(cuMemGetInfo, cuMemGetInfo_v2, 3020, 0)                                              \
    ENTRY(cuGetProcAddress, cuGetProcAddress, 11030, 0)                                        \
    ENTRY(cuGetProcAddress, cuGetProcAddress_v2, 12000, 0)                                     \
    ENTRY(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, 0)                     \
    ENTRY(cuArrayCreate, cuArrayCreate, 2000, 0)                                               \
    ENTRY(cuArrayCreate, cuArrayCreate_v2, 3020, 0)                                            \
    ENTRY(cuArray3DCreate, cuArray3DCreate, 2000, 0)                                           \
    ENTRY(cuArray3DCreate, cuArray3DCreate_v2, 3020, 0)                                        \
    ENTRY(cuArrayDestroy, cuArrayDestroy, 2000, 0)                                             \
    ENTRY(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0)                             \
    ENTRY(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0)                           \
    ENTRY(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0)                          \
    ENTRY(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz, 11020, 1)                     \
    ENTRY(cuMemPoolCreate, cuMemPoolCreate, 11020, 0)                                          \
    ENTRY(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020, 0)    \
    ENTRY(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0)                                        \
    ENTRY(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0)                                          \
    ENTRY(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, 0)                              \
    ENTRY(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0)                              \
    ENTRY(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, 0)                      \
    ENTRY(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, 0)                                    \
    ENTRY(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, 0)                                    \
    ENTRY(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, 0)                            \
    ENTRY(cuMemGetMemPool, cuMemGetMemPool, 13000, 0)                                          \
    ENTRY(cuStreamCreate, cuStreamCreate, 2000, 0)                                             \
    ENTRY(cuStreamDestroy, cuStreamDestroy_v2, 4000, 0)                                        \
    ENTRY(cuStreamGetCtx, cuStreamGetCtx, 9020, 0)                                             \
    ENTRY(cuStreamSynchronize, cuStreamSynchronize, 2000, 0)                                   \
    ENTRY(cuStreamSynchronize, cuStreamSynchronize_ptsz, 7000, 1)                              \
    ENTRY(cuCtxSynchronize, cuCtxSynchronize, 2000, 0)                                         \
    ENTRY(cuCtxSynchronize, cuCtxSynchronize_v2, 13000, 0)                                     \
    ENTRY(cuModuleLoadData, cuModuleLoadData, 2000, 0)                                         \
    ENTRY(cuModuleGetFunction, cuModuleGetFunction, 2000, 0)                                   \
    ENTRY(cuLaunchKernel, cuLaunchKernel, 4000, 0)                                             \
    ENTRY(cuLaunchKernel, cuLaunchKernel_ptsz, 7000, 1)                                        \
    ENTRY(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 0)                                        \
    ENTRY(cuLaunchKernelEx, cuLaunchKernelEx_ptsz, 11060, 1)                                   \
    ENTRY(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 0)                       \
    ENTRY(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz, 9000, 1)                  \
    ENTRY(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, 0) \
    ENTRY(cuLaunch, cuLaunch, 2000, 0)                                                         \
    ENTRY(cuLaunchGrid, cuLaunchGrid, 2000, 0)                                                 \
    ENTRY(cuLaunchGridAsync, cuLaunchGridAsync, 2000, 0)                                       \
    ENTRY(cuEventDestroy, cuEventDestroy_v2, 4000, 0)                                          \
    ENTRY(cuEventRecord, cuEventRecord, 2000, 0)                                               \
    ENTRY(cuEventRecord, cuEventRecord_ptsz, 7000, 1)                                          \
    ENTRY(cuEventQuery, cuEventQuery, 2000, 0)                                                 \
    ENTRY(cuEventElapsedTime, cuEventElapsedTime, 2000, 0)                                     \
    ENTRY(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, 0)      \
    ENTRY(cuEventCreate, cuEventCreate, 2000, 0)                                               \
    ENTRY(cuEventSynchronize, cuEventSynchronize, 2000, 0)                                     \
    ENTRY(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, 0)                             \
    ENTRY(cuStreamEndCapture, cuStreamEndCapture, 10000, 0)                                    \
    ENTRY(cuStreamIsCapturing, cuStreamIsCapturing, 10000, 0)                                  \
    ENTRY(cuStreamIsCapturing, cuStreamIsCapturing_ptsz, 10000, 1)                             \
    ENTRY(cuMemAddressReserve, cuMemAddressReserve, 10020, 0)                                  \
    ENTRY(cuMemCreate, cuMemCreate, 10020, 0)                                                  \
    ENTRY(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0)            \
    ENTRY(cuMemRelease, cuMemRelease, 10020, 0)                                                \
    ENTRY(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0)                  \
    ENTRY(cuMemMap, cuMemMap, 10020, 0)                                                        \
    ENTRY(cuMemUnmap, cuMemUnmap, 10020, 0)                                                    \
    ENTRY(cuGraphCreate, cuGraphCreate, 10000, 0)                                              \
    ENTRY(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, 0)                            \
    ENTRY(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, 0)                              \
    ENTRY(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000, 0)                        \
    ENTRY(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, 0)                                  \
    ENTRY(cuGraphGetNodes, cuGraphGetNodes, 10000, 0)                                          \
    ENTRY(cuGraphNodeGetType, cuGraphNodeGetType, 10000, 0)                                    \
    ENTRY(cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams, 11040, 0)                \
    ENTRY(cuGraphMemFreeNodeGetParams, cuGraphMemFreeNodeGetParams, 11040, 0)                  \
    ENTRY(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000, 0)              \
    ENTRY(cuGraphInstantiate, cuGraphInstantiate, 10000, 0)                                    \
    ENTRY(cuGraphInstantiate, cuGraphInstantiate_v2, 11000, 0)                                 \
    ENTRY(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0)                  \
    ENTRY(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 0)                \
    ENTRY(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz, 12000, 1)           \
    ENTRY(cuGraphLaunch, cuGraphLaunch, 10000, 0)                                              \
    ENTRY(cuGraphLaunch, cuGraphLaunch_ptsz, 10000, 1)                                         \
    ENTRY(cuGraphUpload, cuGraphUpload, 11010, 0)                                              \
    ENTRY(cuGraphUpload, cuGraphUpload_ptsz, 11010, 1)                                         \
    ENTRY(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0)                                    \
    ENTRY(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, 0)                \
    ENTRY(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0)

#define ENTRY(base, symbol, since, per_thread) extern char symbol##_place[] __asm__(#symbol);
ENTRIES
#undef ENTRY

static const struct entry {
    const char *base;
    void *place;
    int since;
    int per_thread;
} entries[] = {
#define ENTRY(base, symbol, since, per_thread) {#base, symbol##_place, since, per_thread},
    ENTRIES
#undef ENTRY
};

/* A driver may have places that none of its symbols has: FAKE_CUDA_UNNAMED has the base names that lead to such. */
extern result cuMemAlloc(unsigned *, unsigned);
extern result cuMemAlloc_v2(address *, size_t);

static result allocate_narrow(unsigned *at, unsigned bytes) {
    return cuMemAlloc(at, bytes);
}

static result allocate_wide(address *at, size_t bytes) {
    return cuMemAlloc_v2(at, bytes);
}

static void *choose_place(const struct entry *entry) {
    const char *unnamed = getenv("FAKE_CUDA_UNNAMED");
    if (!entry || !unnamed || strcmp(unnamed, entry->base) != 0) return entry ? entry->place : NULL;
    return entry->place == (void *)cuMemAlloc ? (void *)allocate_narrow : (void *)allocate_wide;
}

/* A driver has far more than these; where FAKE_CUDA_EVERYTHING says so, the others lead here, and none of them works. */
EXPORT result fake_unsupported(void) {
    return NOT_SUPPORTED;
}

/* Those for the stream per thread take the place of the others of their name, also in versions before them. */
static int has_per_thread(const char *base) {
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].base, base) == 0 && entries[i].per_thread && entries[i].since <= fake_driver_version())
            return 1;
    return 0;
}

/* The newest that is not newer than the version, which may be one that the driver does not know. */
static enum status find(const char *base, int version, uint64_t flags, void **place) {
    const struct entry *best = NULL;
    enum status status = NO_SUCH_SYMBOL;
    int per_thread = flags == PER_THREAD_STREAM && has_per_thread(base);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const struct entry *entry = &entries[i];
        if (strcmp(entry->base, base) != 0 || entry->since > fake_driver_version()) continue;
        status = status == NO_SUCH_SYMBOL ? VERSION_TOO_LOW : status;
        if (entry->since > version || entry->per_thread != per_thread) continue;
        if (!best || entry->since > best->since) best = entry;
        status = FOUND;
    }
    *place = choose_place(best);
    if (status == NO_SUCH_SYMBOL && *base && fake_number("FAKE_CUDA_EVERYTHING", 0)) {
        *place = (void *)fake_unsupported;
        status = FOUND;
    }
    return status;
}

EXPORT result cuGetProcAddress(const char *base, void **place, int version, uint64_t flags) {
    BEGIN_WITHOUT_INIT;
    REQUIRE(base && place && flags <= FLAGS_MOST, INVALID_VALUE);
    return find(base, version, flags, place) == FOUND ? SUCCESS : NOT_FOUND;
}

/* Success also where there is none: the status says so. */
EXPORT result cuGetProcAddress_v2(const char *base, void **place, int version, uint64_t flags, int *status) {
    BEGIN_WITHOUT_INIT;
    REQUIRE(base && place && flags <= FLAGS_MOST, INVALID_VALUE);
    enum status found = find(base, version, flags, place);
    if (status) *status = (int)found;
    return SUCCESS;
}
