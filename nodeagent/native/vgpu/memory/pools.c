/* See pools.h. */
#include "memory/pools.h"

#include <stdlib.h>

#include "ledger/devices.h"
#include "ledger/files.h"
#include "ledger/ledger.h"
#include "ledger/lock.h"
#include "memory/graphs.h"

/* Of blocks that a pool is charged with. */
#define POOL_SLOT (FILES_NO_SLOT + 1)

/*
 * Its lock is held while the driver may change what it has reserved, so that it is known what changed it. Without the lock
 * its fields are only looked at.
 */
struct pool {
    struct pool *next;
    struct lock lock;
    _Atomic(CUmemoryPool) handle; /* NULL: destroyed */
    _Atomic unsigned slot;
    _Atomic uint64_t charged;
    _Atomic uint64_t live; /* allocations that are counted by it */
};

static struct lock adding;
static _Atomic(struct pool *) pools;
static _Atomic uint64_t growth_step = 1; /* the smallest power of two that all growth so far was a multiple of */

/* One whose handle was destroyed and that holds nothing any more, or a new one; with the lock for adding. */
static struct pool *find_unused(void) {
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next)
        if (!pool->handle && pool->charged == 0 && pool->live == 0) return pool;
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool) {
        pool->next = atomic_load(&pools);
        atomic_store_explicit(&pools, pool, memory_order_release);
    }
    return pool;
}

struct pool *pools_find(CUmemoryPool handle) {
    struct pool *pool = handle ? atomic_load_explicit(&pools, memory_order_acquire) : NULL;
    while (pool && pool->handle != handle) pool = pool->next;
    return pool;
}

struct pool *pools_add(CUmemoryPool handle, CUdevice device) {
    struct pool *pool = pools_find(handle);
    unsigned slot = pool || !handle ? FILES_NO_SLOT : devices_find_slot(device);
    if (pool || slot == FILES_NO_SLOT) return pool;
    lock_take(&adding);
    pool = pools_find(handle);
    if (!pool) pool = find_unused();
    if (pool && !pool->handle) {
        pool->slot = slot;
        pool->handle = handle;
    }
    lock_give(&adding);
    return pool;
}

static void learn(uint64_t growth) {
    uint64_t low = growth & -growth, step = atomic_load(&growth_step);
    if (growth && (step == 1 || low < step)) atomic_store(&growth_step, low);
}

/* The pool is charged with what the driver has reserved, `held` being reserved for it. False where that does not fit. */
static bool settle(struct pool *pool, uint64_t held) {
    uint64_t had = pool->charged + held, has = had;
    if (pool->handle) DRIVER_CALL(cuMemPoolGetAttribute, pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &has);
    if (has > pool->charged) learn(has - pool->charged);
    if (has > had && ledger_reserve(pool->slot, has - had) == LEDGER_DENIED) {
        ledger_release(pool->slot, held);
        return false;
    }
    if (has < had) ledger_release(pool->slot, had - has);
    pool->charged = has;
    return true;
}

static void shrink(struct pool *pool) {
    if (pool->handle) DRIVER_CALL(cuMemPoolTrimTo, pool->handle, 0);
    settle(pool, 0);
}

static bool trim(unsigned slot) {
    bool freed = false;
    for (struct pool *pool = atomic_load(&pools); pool; pool = pool->next) {
        if (pool->slot != slot || pool->charged == 0) continue;
        lock_take(&pool->lock);
        uint64_t before = pool->charged;
        shrink(pool);
        freed = freed || pool->charged < before;
        lock_give(&pool->lock);
    }
    return freed;
}

/* What a pool has and nobody uses. Some of it may be of use to some streams only. */
static uint64_t find_spare(const struct pool *pool) {
    uint64_t reserved = 0, used = 0;
    if (!pool->handle ||
        DRIVER_CALL(cuMemPoolGetAttribute, pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
        DRIVER_CALL(cuMemPoolGetAttribute, pool->handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
        return 0;
    return reserved > used ? reserved - used : 0;
}

/* The driver cannot trim what a stream has still to free. False where that is not so, or nobody may wait for the stream. */
static bool wait_for_frees(unsigned slot, CUstream stream, bool per_thread) {
    bool is_worth_it = false;
    for (struct pool *pool = atomic_load(&pools); pool && !is_worth_it; pool = pool->next) {
        lock_take(&pool->lock);
        is_worth_it = pool->slot == slot && find_spare(pool) > 0;
        lock_give(&pool->lock);
    }
    return is_worth_it && pools_wait(stream, per_thread);
}

bool pools_wait(CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult asked = per_thread ? DRIVER_CALL(cuStreamIsCapturing_ptsz, stream, &status)
                                : DRIVER_CALL(cuStreamIsCapturing, stream, &status);
    if (asked != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE) return false;
    /* Another stream of this thread may be captured. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    DRIVER_CALL(cuThreadExchangeStreamCaptureMode, &mode);
    CUresult waited =
        per_thread ? DRIVER_CALL(cuStreamSynchronize_ptsz, stream) : DRIVER_CALL(cuStreamSynchronize, stream);
    DRIVER_CALL(cuThreadExchangeStreamCaptureMode, &mode);
    return waited == CUDA_SUCCESS;
}

bool pools_shrink(unsigned slot) {
    bool freed = trim(slot);
    bool freed_later = wait_for_frees(slot, NULL, false) && trim(slot);
    return freed || freed_later;
}

void pools_settle(void) {
    for (struct pool *pool = atomic_load_explicit(&pools, memory_order_acquire); pool; pool = pool->next) {
        if (pool->charged == 0) continue;
        lock_take(&pool->lock);
        settle(pool, 0);
        lock_give(&pool->lock);
    }
}

/* With the pool's lock, which is given and taken again in between. */
static enum verdict reserve(struct pool *pool, uint64_t bytes) {
    enum verdict verdict = ledger_reserve(pool->slot, bytes);
    if (verdict != LEDGER_DENIED) return verdict;
    lock_give(&pool->lock);
    bool freed = trim(pool->slot);
    freed = graphs_shrink(pool->slot) || freed;
    lock_take(&pool->lock);
    return freed ? ledger_reserve(pool->slot, bytes) : LEDGER_DENIED;
}

static uint64_t round_up(uint64_t bytes) {
    uint64_t step = atomic_load(&growth_step), beyond;
    return __builtin_add_overflow(bytes, step - 1, &beyond) ? UINT64_MAX : beyond / step * step;
}

/* The driver has allocated, and the pool has its lock: grown further than was thought, or beyond account, it goes back. */
static bool keep(struct pool *pool, uint64_t held, CUdeviceptr at, size_t bytes, CUstream stream,
                 pools_release give_back) {
    bool fits = settle(pool, held);
    if (fits && blocks_add((struct block){at, BLOCK_LINEAR, POOL_SLOT, pool, bytes})) {
        pool->live++;
        return true;
    }
    give_back(at, stream);
    shrink(pool);
    return false;
}

/* With the pool's lock. False where there is no room; else the driver has answered. */
static bool try_once(struct pool *pool, CUdeviceptr *at, size_t bytes, CUstream stream, const struct pools_way *way,
                     CUresult *result) {
    uint64_t held = round_up(bytes);
    enum verdict verdict = reserve(pool, held);
    if (verdict == LEDGER_DENIED) {
        uint64_t spare = find_spare(pool);
        held = spare < bytes ? round_up(bytes - spare) : 0;
        verdict = spare ? ledger_reserve(pool->slot, held) : LEDGER_DENIED;
    }
    if (verdict == LEDGER_DENIED) return false;
    *result = way->ask(at, bytes, pool->handle, stream);
    if (verdict == LEDGER_GRANTED && *result == CUDA_SUCCESS)
        return keep(pool, held, WRITTEN(*result, at), bytes, stream, way->give_back);
    if (verdict == LEDGER_GRANTED) settle(pool, held);
    return true;
}

CUresult pools_take(struct pool *pool, CUdeviceptr *at, size_t bytes, CUstream stream, const struct pools_way *way) {
    CUresult result;
    lock_take(&pool->lock);
    bool fits = try_once(pool, at, bytes, stream, way, &result);
    lock_give(&pool->lock);
    if (!fits && wait_for_frees(pool->slot, stream, way->per_thread)) {
        lock_take(&pool->lock);
        fits = try_once(pool, at, bytes, stream, way, &result);
        lock_give(&pool->lock);
    }
    return fits ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

bool pools_forget(const struct block *block) {
    if (block->slot != POOL_SLOT) return false;
    struct pool *pool = (struct pool *)block->owner;
    lock_take(&pool->lock);
    pool->live--;
    if (!pool->handle && pool->live == 0) {
        ledger_release(pool->slot, pool->charged);
        pool->charged = 0;
    }
    lock_give(&pool->lock);
    return true;
}

CUresult pools_destroy(struct pool *pool) {
    lock_take(&pool->lock);
    CUmemoryPool handle = pool->handle;
    shrink(pool);
    /* From here on the driver may give another pool this handle. */
    pool->handle = NULL;
    CUresult result = DRIVER_CALL(cuMemPoolDestroy, handle);
    if (result != CUDA_SUCCESS) pool->handle = handle;
    else if (pool->live == 0) {
        ledger_release(pool->slot, pool->charged);
        pool->charged = 0;
    }
    lock_give(&pool->lock);
    return result;
}

CUresult pools_trim(struct pool *pool, size_t keep) {
    lock_take(&pool->lock);
    CUresult result = DRIVER_CALL(cuMemPoolTrimTo, pool->handle, keep);
    settle(pool, 0);
    lock_give(&pool->lock);
    return result;
}

/* What the parent had is left to lie. */
void pools_after_fork(void) {
    atomic_store(&pools, NULL);
    atomic_store(&adding.held, 0);
}
