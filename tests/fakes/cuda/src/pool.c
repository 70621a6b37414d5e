/*
 * Memory in the order of streams. A pool grows in steps, keeps what is freed, and gives it back where a program waits for
 * the device, down to its threshold. What was freed behind work that is not done is used again at once, and trimmed only
 * when that work is done.
 */
#include <pthread.h>
#include <stdlib.h>

#include "fake.h"

#define POOLS_MOST 64

enum attribute { RELEASE_THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

struct pool {
    int is_there;
    int is_imported;
    device device;
    uint64_t threshold, reserved, reserved_high, used, used_high;
    uint64_t pending, pending_until_ns; /* freed, and not passed by the stream */
};

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct pool pools[DEVICES_MOST + POOLS_MOST]; /* first those of the devices */
static struct pool *current[DEVICES_MOST];

static uint64_t round_up(uint64_t bytes) {
    uint64_t step = fake_number("FAKE_CUDA_POOL_STEP", 1);
    return (bytes + step - 1) / step * step;
}

static void shrink(struct pool *pool, uint64_t keep) {
    pool->pending = pool->pending_until_ns > launch_now() ? pool->pending : 0;
    uint64_t held = pool->used + pool->pending, needed = round_up(held > keep ? held : keep);
    if (pool->reserved > needed) {
        account_credit(pool->device, pool->reserved - needed);
        pool->reserved = needed;
    }
}

static struct pool *find_default(device which) {
    pools[which].is_there = 1;
    pools[which].device = which;
    return &pools[which];
}

static struct pool *find_current(device which) {
    return current[which] ? current[which] : find_default(which);
}

static int is_known(const struct pool *pool) {
    return pool >= pools && pool < pools + DEVICES_MOST + POOLS_MOST && pool->is_there;
}

static result allocate_locked(struct pool *pool, address *at, uint64_t bytes) {
    REQUIRE(is_known(pool) && !pool->is_imported, INVALID_VALUE);
    uint64_t spare = pool->reserved - pool->used;
    if (spare < bytes) {
        uint64_t growth = round_up(bytes - spare);
        result verdict = account_charge(pool->device, growth);
        REQUIRE(verdict == SUCCESS, verdict);
        pool->reserved += growth;
    }
    pool->used += bytes;
    if (pool->pending > pool->reserved - pool->used) pool->pending = pool->reserved - pool->used;
    pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    return memory_place(at, bytes, NULL, pool, 0);
}

static result allocate(struct pool *pool, address *at, uint64_t bytes, void *stream) {
    const struct context *context = context_current();
    REQUIRE(context, INVALID_CONTEXT);
    REQUIRE(at && bytes > 0, INVALID_VALUE);
    struct graph *graph = stream_capturing(stream);
    if (graph) return graph_add_allocation(graph, context->device, bytes, at);
    pthread_mutex_lock(&changing);
    result verdict = allocate_locked(pool ? pool : find_current(context->device), at, bytes);
    pthread_mutex_unlock(&changing);
    return verdict;
}

/* A pool that was destroyed is gone with the last that was allocated from it. */
void pool_free(struct pool *pool, uint64_t bytes, uint64_t passed_ns) {
    pthread_mutex_lock(&changing);
    pool->used -= bytes;
    if (passed_ns > launch_now()) {
        pool->pending += bytes;
        pool->pending_until_ns = passed_ns;
    }
    if (!pool->is_there) shrink(pool, 0);
    pthread_mutex_unlock(&changing);
}

void pool_synchronize(void) {
    pthread_mutex_lock(&changing);
    for (int i = 0; i < DEVICES_MOST + POOLS_MOST; i++)
        if (pools[i].is_there || pools[i].reserved) shrink(&pools[i], pools[i].is_there ? pools[i].threshold : 0);
    pthread_mutex_unlock(&changing);
}

EXPORT result cuMemAllocAsync(address *at, size_t bytes, void *stream) {
    BEGIN;
    return allocate(NULL, at, bytes, stream);
}

EXPORT result cuMemAllocAsync_ptsz(address *at, size_t bytes, void *stream) {
    BEGIN;
    return allocate(NULL, at, bytes, stream);
}

EXPORT result cuMemAllocFromPoolAsync(address *at, size_t bytes, struct pool *pool, void *stream) {
    BEGIN;
    REQUIRE(pool, INVALID_VALUE);
    return allocate(pool, at, bytes, stream);
}

EXPORT result cuMemAllocFromPoolAsync_ptsz(address *at, size_t bytes, struct pool *pool, void *stream) {
    BEGIN;
    REQUIRE(pool, INVALID_VALUE);
    return allocate(pool, at, bytes, stream);
}

static result release(address at, void *stream) {
    struct graph *graph = stream_capturing(stream);
    return graph ? graph_add_free(graph, at) : memory_release(at, launch_end());
}

EXPORT result cuMemFreeAsync(address at, void *stream) {
    BEGIN;
    return release(at, stream);
}

EXPORT result cuMemFreeAsync_ptsz(address at, void *stream) {
    BEGIN;
    return release(at, stream);
}

static result create(struct pool **pool, device which, int is_imported) {
    pthread_mutex_lock(&changing);
    struct pool *made = pools + DEVICES_MOST;
    while (made < pools + DEVICES_MOST + POOLS_MOST && (made->is_there || made->used)) made++;
    int fits = made < pools + DEVICES_MOST + POOLS_MOST;
    if (fits) *made = (struct pool){.is_there = 1, .is_imported = is_imported, .device = which};
    pthread_mutex_unlock(&changing);
    REQUIRE(fits, OUT_OF_MEMORY);
    *pool = made;
    return SUCCESS;
}

EXPORT result cuMemPoolCreate(struct pool **pool, const struct pool_properties *wanted) {
    BEGIN;
    REQUIRE(pool && wanted && wanted->location.type == ON_DEVICE, INVALID_VALUE);
    REQUIRE_DEVICE(wanted->location.id);
    return create(pool, wanted->location.id, 0);
}

EXPORT result cuMemPoolImportFromShareableHandle(struct pool **pool, void *handle, int type, unsigned long long flags) {
    BEGIN;
    (void)handle, (void)type, (void)flags;
    REQUIRE(pool, INVALID_VALUE);
    return create(pool, 0, 1);
}

EXPORT result cuMemPoolDestroy(struct pool *pool) {
    BEGIN;
    REQUIRE(is_known(pool) && pool >= pools + DEVICES_MOST, INVALID_VALUE);
    pthread_mutex_lock(&changing);
    pool->is_there = 0;
    shrink(pool, 0);
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}

EXPORT result cuMemPoolTrimTo(struct pool *pool, size_t keep) {
    BEGIN;
    REQUIRE(is_known(pool), INVALID_VALUE);
    pthread_mutex_lock(&changing);
    shrink(pool, keep);
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}

EXPORT result cuMemPoolGetAttribute(struct pool *pool, int attribute, uint64_t *value) {
    BEGIN;
    REQUIRE(is_known(pool) && value, INVALID_VALUE);
    pthread_mutex_lock(&changing);
    switch (attribute) {
    case RELEASE_THRESHOLD: *value = pool->threshold; break;
    case RESERVED: *value = pool->reserved; break;
    case RESERVED_HIGH: *value = pool->reserved_high; break;
    case USED: *value = pool->used; break;
    case USED_HIGH: *value = pool->used_high; break;
    default: *value = 0;
    }
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}

EXPORT result cuMemPoolSetAttribute(struct pool *pool, int attribute, const uint64_t *value) {
    BEGIN;
    REQUIRE(is_known(pool) && value, INVALID_VALUE);
    if (attribute == RELEASE_THRESHOLD) pool->threshold = *value;
    return SUCCESS;
}

EXPORT result cuDeviceGetDefaultMemPool(struct pool **pool, device which) {
    BEGIN;
    REQUIRE(pool, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    *pool = find_default(which);
    return SUCCESS;
}

EXPORT result cuDeviceGetMemPool(struct pool **pool, device which) {
    BEGIN;
    REQUIRE(pool, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    *pool = find_current(which);
    return SUCCESS;
}

EXPORT result cuDeviceSetMemPool(device which, struct pool *pool) {
    BEGIN;
    REQUIRE(is_known(pool), INVALID_VALUE);
    REQUIRE_DEVICE(which);
    current[which] = pool;
    return SUCCESS;
}

EXPORT result cuMemGetDefaultMemPool(struct pool **pool, const struct location *location, int type) {
    BEGIN;
    (void)type;
    REQUIRE(pool && location && location->type == ON_DEVICE, INVALID_VALUE);
    REQUIRE_DEVICE(location->id);
    *pool = find_default(location->id);
    return SUCCESS;
}

EXPORT result cuMemGetMemPool(struct pool **pool, const struct location *location, int type) {
    BEGIN;
    (void)type;
    REQUIRE(pool && location && location->type == ON_DEVICE, INVALID_VALUE);
    REQUIRE_DEVICE(location->id);
    *pool = find_current(location->id);
    return SUCCESS;
}
