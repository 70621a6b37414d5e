/*
 * What the driver has reserved for pools of memory is what counts, not what of it is in use. It is reserved before it can
 * grow, and what a pool keeps without need is given back before anything is refused: for that the stream is waited for once,
 * as the driver cannot give back what a stream has still to free.
 */
#ifndef VGPU_POOLS_H
#define VGPU_POOLS_H

#include <stdbool.h>

#include "memory/blocks.h"
#include "front/driver.h"

struct pool;
typedef CUresult (*pools_allocate)(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream);
typedef CUresult (*pools_release)(CUdeviceptr at, CUstream stream);

/* NULL for one that is not known. */
struct pool *pools_find(CUmemoryPool handle);

/* The one there is, or a new one; NULL where its device has no limits, or there is no memory for it. */
struct pool *pools_add(CUmemoryPool handle, CUdevice device);

/* How the program asks, and how what it was given goes back. */
struct pools_way {
    pools_allocate ask;
    pools_release give_back;
    bool per_thread;
};

/* Allocate from it, within the limit. */
CUresult pools_take(struct pool *pool, CUdeviceptr *at, size_t bytes, CUstream stream, const struct pools_way *way);

/* As the driver's functions of these names; what was allocated stays until it is freed. */
CUresult pools_destroy(struct pool *pool);
CUresult pools_trim(struct pool *pool, size_t keep);

/* After the driver may have given back what pools no longer need. */
void pools_settle(void);

/* Let the driver give back what the pools of a slot keep. True where that made room. */
bool pools_shrink(unsigned slot);

/* Wait for a stream once. False where the driver does not let anybody, as it is captured. */
bool pools_wait(CUstream stream, bool per_thread);

/* Whether a block that was freed was a pool's, which stays charged with what it has reserved. */
bool pools_forget(const struct block *block);

/* In the child of a fork. */
void pools_after_fork(void);

#endif
