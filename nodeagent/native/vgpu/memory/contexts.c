/* See contexts.h. */
#include "memory/contexts.h"

#include "compute/durations.h"
#include "ledger/claim.h"
#include "ledger/devices.h"
#include "ledger/files.h"
#include "ledger/ledger.h"
#include "ledger/lock.h"
#include "memory/context_size.h"
#include "memory/graphs.h"
#include "memory/pools.h"

#define DEVICES_MOST 64

/* Held while a primary context may begin or end: its address may be the same each time. */
static struct lock changing;
static CUcontext primary[DEVICES_MOST];

/* Held while a context is made and measured, as two at once would be one for NVML. */
static struct lock measuring;
static atomic_bool is_measured[VGPU_DEVICES]; /* one that is there now */

CUresult cuInit(unsigned flags) {
    CUresult result = DRIVER_CALL(cuInit, flags);
    if (result == CUDA_SUCCESS) ledger_attach();
    return result;
}

/* A context that is about to be made: charged with what the limits file says, or the first of a device with what it takes. */
struct making {
    struct claim claim;
    unsigned slot;
    bool is_measured; /* with the lock for that */
    struct context_reading before;
};

static bool begin(struct making *making, CUdevice device) {
    unsigned slot = devices_find_slot(device);
    uint64_t bytes = slot < VGPU_DEVICES ? files_context_bytes(slot) : 0;
    making->slot = slot;
    making->is_measured = false;
    if (!claim_begin_on(&making->claim, slot, bytes)) return false;
    if (bytes > 0 || slot >= VGPU_DEVICES || files_look() != VGPU_LIMITING ||
        files_memory_limit(slot) == FILES_UNLIMITED)
        return true;
    lock_take(&measuring);
    making->is_measured = !is_measured[slot] && context_size_begin(&making->before, device);
    if (!making->is_measured) lock_give(&measuring);
    return true;
}

static CUresult destroy(uint64_t key) {
    return DRIVER_CALL(cuCtxDestroy_v2, (CUcontext)(uintptr_t)key);
}

/* Only now it is known what it takes: where that does not fit, it goes back. */
static CUresult end_measuring(struct making *making, CUresult result, uint64_t key,
                              CUresult (*give_back)(uint64_t key)) {
    uint64_t bytes = context_size_end(&making->before);
    if (result == CUDA_SUCCESS && key && !claim_begin_on(&making->claim, making->slot, bytes)) {
        give_back(key);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    is_measured[making->slot] = making->claim.counted;
    lock_give(&measuring);
    return result;
}

static CUresult end(struct making *making, CUresult result, CUcontext *context, CUresult (*give_back)(uint64_t key)) {
    CUcontext made = WRITTEN(result, context);
    uint64_t key = (uint64_t)(uintptr_t)made;
    if (making->is_measured) result = end_measuring(making, result, key, give_back);
    making->claim.context = made;
    return claim_end(&making->claim, result, BLOCK_CONTEXT, key, give_back);
}

static void release(struct block_list *list) {
    struct block block;
    while (blocks_pop(&list, &block)) {
        if (block.kind == BLOCK_CONTEXT) is_measured[block.slot] = false;
        ledger_release(block.slot, block.bytes);
    }
    pools_settle();
    graphs_settle();
}

#define CREATE(name, ...)                                                                \
    struct making making;                                                                \
    if (!begin(&making, device)) return CUDA_ERROR_OUT_OF_MEMORY;                        \
    return end(&making, DRIVER_CALL(name, __VA_ARGS__, flags, device), context, destroy)

CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
    CREATE(cuCtxCreate, context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    CREATE(cuCtxCreate_v2, context);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *wanted, int count, unsigned flags, CUdevice device) {
    CREATE(cuCtxCreate_v3, context, wanted, count);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *wanted, unsigned flags, CUdevice device) {
    CREATE(cuCtxCreate_v4, context, wanted);
}

/* What was in it is taken out first: the driver may give addresses, and the context's own, to others at once. */
#define DESTROY(name)                                  \
    struct block_list *list = blocks_take_of(context); \
    struct sample_list samples;                        \
    durations_take_of(&samples, context);              \
    CUresult result = DRIVER_CALL(name, context);      \
    if (result == CUDA_SUCCESS) release(list);         \
    else {                                             \
        blocks_put_back(list);                         \
        durations_put_back(&samples);                  \
    }                                                  \
    return result

CUresult cuCtxDestroy(CUcontext context) {
    DESTROY(cuCtxDestroy);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    DESTROY(cuCtxDestroy_v2);
}

static bool is_active(CUdevice device) {
    unsigned flags = 0;
    int active = 0;
    return DRIVER_CALL(cuDevicePrimaryCtxGetState, device, &flags, &active) == CUDA_SUCCESS && active;
}

static CUresult give_back_primary(uint64_t key) {
    CUdevice device = 0;
    while (device < DEVICES_MOST && primary[device] != (CUcontext)(uintptr_t)key) device++;
    return DRIVER_CALL(cuDevicePrimaryCtxRelease_v2, device);
}

/* Whoever retains it first makes it. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    struct making making;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    making.claim.counted = making.is_measured = false;
    lock_take(&changing);
    if (is_active(device) || begin(&making, device)) {
        result = DRIVER_CALL(cuDevicePrimaryCtxRetain, context, device);
        if (result == CUDA_SUCCESS && context && device >= 0 && device < DEVICES_MOST) primary[device] = *context;
        result = end(&making, result, context, give_back_primary);
    }
    lock_give(&changing);
    return result;
}

static CUcontext find_primary(CUdevice device) {
    return device >= 0 && device < DEVICES_MOST ? primary[device] : NULL;
}

/* Where that was the last who had retained it. */
static void end_primary(CUdevice device, const struct sample_list *samples) {
    CUcontext context = find_primary(device);
    if (!context || is_active(device)) {
        durations_put_back(samples);
        return;
    }
    release(blocks_take_of(context));
    primary[device] = NULL;
}

#define END_PRIMARY(name)                              \
    lock_take(&changing);                              \
    struct sample_list samples;                        \
    durations_take_of(&samples, find_primary(device)); \
    CUresult result = DRIVER_CALL(name, device);       \
    end_primary(device, &samples);                     \
    lock_give(&changing);                              \
    return result

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    END_PRIMARY(cuDevicePrimaryCtxRelease);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    END_PRIMARY(cuDevicePrimaryCtxRelease_v2);
}

/* Everything in it is gone, and it may be used on. */
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    END_PRIMARY(cuDevicePrimaryCtxReset);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    END_PRIMARY(cuDevicePrimaryCtxReset_v2);
}

void contexts_after_fork(void) {
    atomic_store(&changing.held, 0);
    atomic_store(&measuring.held, 0);
    for (unsigned i = 0; i < VGPU_DEVICES; i++) atomic_store(&is_measured[i], false);
}
