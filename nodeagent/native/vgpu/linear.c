/* See linear.h. */
#include "linear.h"

#include <stdbool.h>

#include "blocks.h"
#include "devices.h"
#include "files.h"
#include "ledger.h"

#define ROW_STEP 512u /* no driver has been seen to pad a row further */

/* What was reserved for a call to the driver. */
struct claim {
    CUcontext context;
    uint64_t bytes;
    unsigned slot;
    bool counted;
};

/* False where it is past the limit. What the driver will refuse anyway is left to it, with its own error. */
static bool begin(struct claim *claim, uint64_t bytes)
{
    *claim = (struct claim){NULL, bytes, FILES_NO_SLOT, false};
    if (bytes == 0 || DRIVER_CALL(cuCtxGetCurrent, &claim->context) != CUDA_SUCCESS || !claim->context)
        return true;
    claim->slot = devices_find_current_slot();
    enum verdict verdict = ledger_reserve(claim->slot, bytes);
    claim->counted = verdict == LEDGER_GRANTED;
    return verdict != LEDGER_DENIED;
}

/* The driver has answered; where it has given memory that cannot be kept account of, it is given back. */
static CUresult end(const struct claim *claim, CUresult result, uint64_t at)
{
    if (!claim->counted)
        return result;
    if (result == CUDA_SUCCESS) {
        if (blocks_add((struct block){at, claim->context, claim->bytes, claim->slot}))
            return CUDA_SUCCESS;
        DRIVER_CALL(cuMemFree_v2, at);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    ledger_release(claim->slot, claim->bytes);
    return result;
}

/* The rows were longer or shorter than was thought. False where the rest does not fit. */
static bool correct(struct claim *claim, uint64_t bytes)
{
    if (!claim->counted)
        return true;
    if (bytes > claim->bytes && ledger_reserve(claim->slot, bytes - claim->bytes) != LEDGER_GRANTED)
        return false;
    if (bytes < claim->bytes)
        ledger_release(claim->slot, claim->bytes - bytes);
    claim->bytes = bytes;
    return true;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t guess_pitched(uint64_t width, uint64_t height)
{
    uint64_t padded;
    bool beyond = __builtin_add_overflow(width, ROW_STEP - 1, &padded);
    return width == 0 || height == 0 ? 0 : beyond ? UINT64_MAX : multiply(padded / ROW_STEP * ROW_STEP, height);
}

static CUresult end_pitched(struct claim *claim, CUresult result, uint64_t at, uint64_t pitch, uint64_t height)
{
    if (result == CUDA_SUCCESS && !correct(claim, multiply(pitch, height))) {
        DRIVER_CALL(cuMemFree_v2, at);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return end(claim, result, at);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *at, unsigned bytes)
{
    struct claim claim;
    if (!begin(&claim, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAlloc, at, bytes);
    return end(&claim, result, result == CUDA_SUCCESS ? *at : 0);
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes)
{
    struct claim claim;
    if (!begin(&claim, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAlloc_v2, at, bytes);
    return end(&claim, result, result == CUDA_SUCCESS ? *at : 0);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *at, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
    struct claim claim;
    if (!begin(&claim, guess_pitched(width, height)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAllocPitch, at, pitch, width, height, element);
    bool made = result == CUDA_SUCCESS;
    return end_pitched(&claim, result, made ? *at : 0, made ? *pitch : 0, height);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element)
{
    struct claim claim;
    if (!begin(&claim, guess_pitched(width, height)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAllocPitch_v2, at, pitch, width, height, element);
    bool made = result == CUDA_SUCCESS;
    return end_pitched(&claim, result, made ? *at : 0, made ? *pitch : 0, height);
}

CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags)
{
    struct claim claim;
    if (!begin(&claim, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemAllocManaged, at, bytes, flags);
    return end(&claim, result, result == CUDA_SUCCESS ? *at : 0);
}

static CUresult end_free(bool found, const struct block *block, CUresult result)
{
    if (found && result == CUDA_SUCCESS)
        ledger_release(block->slot, block->bytes);
    else if (found)
        blocks_add(*block);
    return result;
}

CUresult cuMemFree(CUdeviceptr_v1 at)
{
    struct block block;
    bool found = blocks_take(at, &block);
    return end_free(found, &block, DRIVER_CALL(cuMemFree, at));
}

CUresult cuMemFree_v2(CUdeviceptr at)
{
    struct block block;
    bool found = blocks_take(at, &block);
    return end_free(found, &block, DRIVER_CALL(cuMemFree_v2, at));
}

static uint64_t read_limit(unsigned slot)
{
    return slot < VGPU_DEVICES && files_look() == VGPU_LIMITING ? files_memory_limit(slot) : FILES_UNLIMITED;
}

static uint64_t lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Within the limit of the current device; others that share it may have left less than that. */
static void narrow(uint64_t *spare, uint64_t *total)
{
    unsigned slot = devices_find_current_slot();
    uint64_t limit = read_limit(slot);
    if (limit == FILES_UNLIMITED)
        return;
    uint64_t used = ledger_used(slot);
    *total = lower(*total, limit);
    *spare = lower(*spare, used < limit ? limit - used : 0);
}

CUresult cuMemGetInfo(unsigned *spare, unsigned *total)
{
    CUresult result = DRIVER_CALL(cuMemGetInfo, spare, total);
    if (result == CUDA_SUCCESS) {
        uint64_t wide_spare = *spare, wide_total = *total;
        narrow(&wide_spare, &wide_total);
        *spare = (unsigned)wide_spare;
        *total = (unsigned)wide_total;
    }
    return result;
}

CUresult cuMemGetInfo_v2(size_t *spare, size_t *total)
{
    CUresult result = DRIVER_CALL(cuMemGetInfo_v2, spare, total);
    if (result == CUDA_SUCCESS) {
        uint64_t wide_spare = *spare, wide_total = *total;
        narrow(&wide_spare, &wide_total);
        *spare = wide_spare;
        *total = wide_total;
    }
    return result;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    CUresult result = DRIVER_CALL(cuDeviceTotalMem, bytes, device);
    if (result == CUDA_SUCCESS)
        *bytes = (unsigned)lower(*bytes, read_limit(devices_find_slot(device)));
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = DRIVER_CALL(cuDeviceTotalMem_v2, bytes, device);
    if (result == CUDA_SUCCESS)
        *bytes = lower(*bytes, read_limit(devices_find_slot(device)));
    return result;
}
