/* See stream_memory.h. */
#include "memory/stream_memory.h"

#include <stdbool.h>

#include "ledger/claim.h"
#include "ledger/devices.h"
#include "ledger/files.h"
#include "ledger/ledger.h"
#include "memory/pools.h"

static CUdevice find_device(CUstream stream) {
    CUdevice device;
    bool entered;
    if (!devices_enter(stream, &entered)) return -1;
    if (DRIVER_CALL(cuCtxGetDevice, &device) != CUDA_SUCCESS) device = -1;
    devices_leave(entered);
    return device;
}

/* Of a pool that was not made before this library's eyes: the driver's own, or one of another process. */
static CUdevice find_device_of(CUmemoryPool handle) {
    int count = 0;
    CUmemoryPool pool;
    DRIVER_CALL(cuDeviceGetCount, &count);
    for (CUdevice device = 0; device < count; device++)
        if ((DRIVER_CALL(cuDeviceGetDefaultMemPool, &pool, device) == CUDA_SUCCESS && pool == handle) ||
            (DRIVER_CALL(cuDeviceGetMemPool, &pool, device) == CUDA_SUCCESS && pool == handle))
            return device;
    return -1;
}

static struct pool *find_pool(CUmemoryPool handle, CUstream stream) {
    struct pool *known = pools_find(handle);
    CUdevice device = known ? -1 : handle ? find_device_of(handle) : find_device(stream);
    if (!handle && DRIVER_CALL(cuDeviceGetMemPool, &handle, device) != CUDA_SUCCESS) return NULL;
    return known ? known : pools_add(handle, device);
}

/* False where nothing may be allocated. No pool for what none is charged with: what is captured becomes part of a graph. */
static bool choose(struct pool **pool, CUmemoryPool handle, size_t bytes, CUstream stream, bool per_thread) {
    *pool = NULL;
    if (bytes == 0 || devices_is_captured(stream, per_thread)) return true;
    *pool = find_pool(handle, stream);
    return *pool || ledger_reserve(FILES_NO_SLOT, bytes) != LEDGER_DENIED;
}

static CUresult ask_current(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream) {
    (void)handle;
    return DRIVER_CALL(cuMemAllocAsync, at, bytes, stream);
}

static CUresult ask_current_per_thread(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream) {
    (void)handle;
    return DRIVER_CALL(cuMemAllocAsync_ptsz, at, bytes, stream);
}

static CUresult ask_pool(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream) {
    return DRIVER_CALL(cuMemAllocFromPoolAsync, at, bytes, handle, stream);
}

static CUresult ask_pool_per_thread(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream) {
    return DRIVER_CALL(cuMemAllocFromPoolAsync_ptsz, at, bytes, handle, stream);
}

static CUresult give_back(CUdeviceptr at, CUstream stream) {
    return DRIVER_CALL(cuMemFreeAsync, at, stream);
}

static CUresult give_back_per_thread(CUdeviceptr at, CUstream stream) {
    return DRIVER_CALL(cuMemFreeAsync_ptsz, at, stream);
}

static const struct pools_way by_current = {ask_current, give_back, false};
static const struct pools_way by_current_per_thread = {ask_current_per_thread, give_back_per_thread, true};
static const struct pools_way by_pool = {ask_pool, give_back, false};
static const struct pools_way by_pool_per_thread = {ask_pool_per_thread, give_back_per_thread, true};

CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream stream) {
    struct pool *pool;
    if (!choose(&pool, NULL, bytes, stream, false)) return CUDA_ERROR_OUT_OF_MEMORY;
    return pool ? pools_take(pool, at, bytes, stream, &by_current) : ask_current(at, bytes, NULL, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *at, size_t bytes, CUstream stream) {
    struct pool *pool;
    if (!choose(&pool, NULL, bytes, stream, true)) return CUDA_ERROR_OUT_OF_MEMORY;
    return pool ? pools_take(pool, at, bytes, stream, &by_current_per_thread)
                : ask_current_per_thread(at, bytes, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream) {
    struct pool *pool = NULL;
    if (handle && !choose(&pool, handle, bytes, stream, false)) return CUDA_ERROR_OUT_OF_MEMORY;
    return pool ? pools_take(pool, at, bytes, stream, &by_pool) : ask_pool(at, bytes, handle, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream) {
    struct pool *pool = NULL;
    if (handle && !choose(&pool, handle, bytes, stream, true)) return CUDA_ERROR_OUT_OF_MEMORY;
    return pool ? pools_take(pool, at, bytes, stream, &by_pool_per_thread)
                : ask_pool_per_thread(at, bytes, handle, stream);
}

/* Memory that no pool gave may be freed so too. */
static CUresult end_free(CUdeviceptr at, CUstream stream, pools_release free_it) {
    struct block block;
    bool found = blocks_take(BLOCK_LINEAR, at, &block);
    return claim_end_free(found, &block, free_it(at, stream));
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) {
    return end_free(at, stream, give_back);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream) {
    return end_free(at, stream, give_back_per_thread);
}

static CUresult know(CUresult result, const CUmemoryPool *handle, const CUmemLocation *location) {
    if (result == CUDA_SUCCESS && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        pools_add(WRITTEN(result, handle), location->id);
    return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties) {
    CUresult result = DRIVER_CALL(cuMemPoolCreate, handle, properties);
    return know(result, handle, properties ? &properties->location : NULL);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *handle, CUmemLocation *location, CUmemAllocationType type) {
    return know(DRIVER_CALL(cuMemGetDefaultMemPool, handle, location, type), handle, location);
}

CUresult cuMemGetMemPool(CUmemoryPool *handle, CUmemLocation *location, CUmemAllocationType type) {
    return know(DRIVER_CALL(cuMemGetMemPool, handle, location, type), handle, location);
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool = pools_find(handle);
    return pool ? pools_destroy(pool) : DRIVER_CALL(cuMemPoolDestroy, handle);
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    struct pool *pool = pools_find(handle);
    return pool ? pools_trim(pool, keep) : DRIVER_CALL(cuMemPoolTrimTo, handle, keep);
}

static CUresult settle(CUresult result) {
    pools_settle();
    return result;
}

CUresult cuStreamSynchronize(CUstream stream) {
    return settle(DRIVER_CALL(cuStreamSynchronize, stream));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return settle(DRIVER_CALL(cuStreamSynchronize_ptsz, stream));
}

CUresult cuEventSynchronize(CUevent event) {
    return settle(DRIVER_CALL(cuEventSynchronize, event));
}

CUresult cuCtxSynchronize(void) {
    return settle(DRIVER_CALL(cuCtxSynchronize));
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    return settle(DRIVER_CALL(cuCtxSynchronize_v2, context));
}
