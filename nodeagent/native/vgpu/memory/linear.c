/* See linear.h. */
#include "memory/linear.h"

#include "ledger/claim.h"
#include "ledger/devices.h"
#include "ledger/files.h"
#include "ledger/ledger.h"

#define ROW_STEP 512u /* no driver has been seen to pad a row further */

static CUresult give_back(uint64_t at) {
    return DRIVER_CALL(cuMemFree_v2, at);
}

static CUresult give_back_narrow(uint64_t at) {
    return DRIVER_CALL(cuMemFree, (CUdeviceptr_v1)at);
}

static CUresult end(const struct claim *claim, CUresult result, uint64_t at) {
    return claim_end(claim, result, BLOCK_LINEAR, at, give_back);
}

static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t guess_pitched(uint64_t width, uint64_t height) {
    uint64_t padded;
    bool beyond = __builtin_add_overflow(width, ROW_STEP - 1, &padded);
    return width == 0 || height == 0 ? 0 : beyond ? UINT64_MAX : multiply(padded / ROW_STEP * ROW_STEP, height);
}

static CUresult end_pitched(struct claim *claim, CUresult result, uint64_t at, uint64_t pitch, uint64_t height) {
    if (result == CUDA_SUCCESS && !claim_correct(claim, multiply(pitch, height))) {
        give_back(at);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return end(claim, result, at);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *at, unsigned bytes) {
    struct claim claim;
    if (!claim_begin(&claim, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAlloc, at, bytes);
    return end(&claim, result, WRITTEN(result, at));
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
    struct claim claim;
    if (!claim_begin(&claim, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAlloc_v2, at, bytes);
    return end(&claim, result, WRITTEN(result, at));
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *at, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    struct claim claim;
    if (!claim_begin(&claim, guess_pitched(width, height))) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAllocPitch, at, pitch, width, height, element);
    return end_pitched(&claim, result, WRITTEN(result, at), WRITTEN(result, pitch), height);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element) {
    struct claim claim;
    if (!claim_begin(&claim, guess_pitched(width, height))) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAllocPitch_v2, at, pitch, width, height, element);
    return end_pitched(&claim, result, WRITTEN(result, at), WRITTEN(result, pitch), height);
}

CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags) {
    struct claim claim;
    if (!claim_begin(&claim, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAllocManaged, at, bytes, flags);
    return end(&claim, result, WRITTEN(result, at));
}

CUresult cuMemFree(CUdeviceptr_v1 at) {
    return claim_free(BLOCK_LINEAR, at, give_back_narrow);
}

CUresult cuMemFree_v2(CUdeviceptr at) {
    return claim_free(BLOCK_LINEAR, at, give_back);
}

static uint64_t read_limit(unsigned slot) {
    return slot < VGPU_DEVICES && files_look() == VGPU_LIMITING ? files_memory_limit(slot) : FILES_UNLIMITED;
}

static uint64_t lower(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Within the limit of the current device; others that share it may have left less than that. */
static void narrow(uint64_t *spare, uint64_t *total) {
    unsigned slot = devices_find_current_slot();
    uint64_t limit = read_limit(slot);
    if (limit == FILES_UNLIMITED) return;
    uint64_t used = ledger_used(slot);
    *total = lower(*total, limit);
    *spare = lower(*spare, used < limit ? limit - used : 0);
}

CUresult cuMemGetInfo(unsigned *spare, unsigned *total) {
    CUresult result = DRIVER_CALL(cuMemGetInfo, spare, total);
    uint64_t wide_spare = WRITTEN(result, spare), wide_total = WRITTEN(result, total);
    if (result == CUDA_SUCCESS) narrow(&wide_spare, &wide_total);
    if (result == CUDA_SUCCESS && spare) *spare = (unsigned)wide_spare;
    if (result == CUDA_SUCCESS && total) *total = (unsigned)wide_total;
    return result;
}

CUresult cuMemGetInfo_v2(size_t *spare, size_t *total) {
    CUresult result = DRIVER_CALL(cuMemGetInfo_v2, spare, total);
    uint64_t wide_spare = WRITTEN(result, spare), wide_total = WRITTEN(result, total);
    if (result == CUDA_SUCCESS) narrow(&wide_spare, &wide_total);
    if (result == CUDA_SUCCESS && spare) *spare = wide_spare;
    if (result == CUDA_SUCCESS && total) *total = wide_total;
    return result;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
    CUresult result = DRIVER_CALL(cuDeviceTotalMem, bytes, device);
    if (result == CUDA_SUCCESS && bytes) *bytes = (unsigned)lower(*bytes, read_limit(devices_find_slot(device)));
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult result = DRIVER_CALL(cuDeviceTotalMem_v2, bytes, device);
    if (result == CUDA_SUCCESS && bytes) *bytes = lower(*bytes, read_limit(devices_find_slot(device)));
    return result;
}
