/* Memory that is made and mapped apart: there as long as a handle refers to it or it is mapped somewhere. */
#include <pthread.h>
#include <stdlib.h>

#include "fake.h"

#define MAPS_MOST 1024
#define RANGES_START UINT64_C(0x600000000000)

struct physical {
    struct physical *next;
    device device; /* -1: the host's memory */
    uint64_t bytes;
    unsigned handles, maps;
};
struct map {
    address at;
    uint64_t bytes;
    struct physical *physical;
};
struct properties {
    int type, handle_types;
    struct location location;
};

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct physical *physicals;
static struct map maps[MAPS_MOST];
static uint64_t next_range = RANGES_START;

static struct physical *find(uint64_t handle) {
    struct physical *each = physicals;
    while (each && (uint64_t)(uintptr_t)each != handle) each = each->next;
    return each && each->handles > 0 ? each : NULL;
}

static void drop_unheld(struct physical *physical) {
    if (physical->handles || physical->maps) return;
    struct physical **place = &physicals;
    while (*place != physical) place = &(*place)->next;
    *place = physical->next;
    if (physical->device >= 0) account_credit(physical->device, physical->bytes);
    free(physical);
}

EXPORT result cuMemAddressReserve(address *at, size_t bytes, size_t alignment, address wish, unsigned long long flags) {
    BEGIN;
    (void)alignment, (void)wish, (void)flags;
    REQUIRE(at && bytes > 0, INVALID_VALUE);
    pthread_mutex_lock(&changing);
    *at = next_range;
    next_range += bytes;
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}

EXPORT result cuMemCreate(uint64_t *handle, size_t bytes, const struct properties *wanted, unsigned long long flags) {
    BEGIN;
    (void)flags;
    REQUIRE(handle && wanted && bytes > 0, INVALID_VALUE);
    int is_here = wanted->location.type == ON_DEVICE;
    if (is_here) REQUIRE_DEVICE(wanted->location.id);
    result verdict = is_here ? account_charge(wanted->location.id, bytes) : SUCCESS;
    REQUIRE(verdict == SUCCESS, verdict);
    struct physical *physical = calloc(1, sizeof *physical);
    REQUIRE(physical, OUT_OF_MEMORY);
    pthread_mutex_lock(&changing);
    *physical = (struct physical){physicals, is_here ? wanted->location.id : -1, bytes, 1, 0};
    physicals = physical;
    pthread_mutex_unlock(&changing);
    *handle = (uint64_t)(uintptr_t)physical;
    return SUCCESS;
}

/* From another process: its owner pays. */
EXPORT result cuMemImportFromShareableHandle(uint64_t *handle, void *shared, int type) {
    BEGIN;
    (void)shared, (void)type;
    REQUIRE(handle, INVALID_VALUE);
    struct physical *physical = calloc(1, sizeof *physical);
    REQUIRE(physical, OUT_OF_MEMORY);
    pthread_mutex_lock(&changing);
    *physical = (struct physical){physicals, -1, 0, 1, 0};
    physicals = physical;
    pthread_mutex_unlock(&changing);
    *handle = (uint64_t)(uintptr_t)physical;
    return SUCCESS;
}

EXPORT result cuMemRelease(uint64_t handle) {
    BEGIN;
    pthread_mutex_lock(&changing);
    struct physical *physical = find(handle);
    if (physical) {
        physical->handles--;
        drop_unheld(physical);
    }
    pthread_mutex_unlock(&changing);
    return physical ? SUCCESS : INVALID_VALUE;
}

EXPORT result cuMemRetainAllocationHandle(uint64_t *handle, void *at) {
    BEGIN;
    REQUIRE(handle, INVALID_VALUE);
    pthread_mutex_lock(&changing);
    struct physical *physical = NULL;
    for (int i = 0; i < MAPS_MOST; i++)
        if (maps[i].physical && (address)(uintptr_t)at - maps[i].at < maps[i].bytes) physical = maps[i].physical;
    if (physical) physical->handles++;
    pthread_mutex_unlock(&changing);
    *handle = (uint64_t)(uintptr_t)physical;
    return physical ? SUCCESS : INVALID_VALUE;
}

EXPORT result cuMemMap(address at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    BEGIN;
    (void)offset, (void)flags;
    pthread_mutex_lock(&changing);
    struct physical *physical = find(handle);
    int i = 0;
    while (i < MAPS_MOST && maps[i].physical) i++;
    int fits = physical && i < MAPS_MOST && at >= RANGES_START;
    if (fits) {
        maps[i] = (struct map){at, bytes, physical};
        physical->maps++;
    }
    pthread_mutex_unlock(&changing);
    return fits ? SUCCESS : INVALID_VALUE;
}

EXPORT result cuMemUnmap(address at, size_t bytes) {
    BEGIN;
    int found = 0;
    pthread_mutex_lock(&changing);
    for (int i = 0; i < MAPS_MOST; i++)
        if (maps[i].physical && maps[i].at >= at && maps[i].at + maps[i].bytes <= at + bytes) {
            maps[i].physical->maps--;
            drop_unheld(maps[i].physical);
            maps[i].physical = NULL;
            found++;
        }
    pthread_mutex_unlock(&changing);
    return found ? SUCCESS : INVALID_VALUE;
}
