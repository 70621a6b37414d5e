/*
 * Entry points by base name, version and flags. ENTRY(base, symbol, since, per thread): from which version of CUDA a
 * program means this symbol by the base name, and whether only where it asks for the stream per thread.
 */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define PER_THREAD_STREAM 2u
#define FLAGS_MOST 2u

enum status { FOUND = 0, NO_SUCH_SYMBOL = 1, VERSION_TOO_LOW = 2 };

#define ENTRIES                                                           \
    ENTRY(cuInit, cuInit, 2000, 0)                                        \
    ENTRY(cuDriverGetVersion, cuDriverGetVersion, 2020, 0)                \
    ENTRY(cuDeviceGetCount, cuDeviceGetCount, 2000, 0)                    \
    ENTRY(cuDeviceGet, cuDeviceGet, 2000, 0)                              \
    ENTRY(cuDeviceGetName, cuDeviceGetName, 2000, 0)                      \
    ENTRY(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, 0)            \
    ENTRY(cuDeviceGetUuid, cuDeviceGetUuid, 9020, 0)                      \
    ENTRY(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, 0)                  \
    ENTRY(cuDeviceTotalMem, cuDeviceTotalMem, 2000, 0)                    \
    ENTRY(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, 0)                 \
    ENTRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0)    \
    ENTRY(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0)  \
    ENTRY(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, 0) \
    ENTRY(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0)      \
    ENTRY(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, 0)  \
    ENTRY(cuCtxCreate, cuCtxCreate, 2000, 0)                              \
    ENTRY(cuCtxCreate, cuCtxCreate_v2, 3020, 0)                           \
    ENTRY(cuCtxCreate, cuCtxCreate_v3, 11040, 0)                          \
    ENTRY(cuCtxCreate, cuCtxCreate_v4, 12050, 0)                          \
    ENTRY(cuCtxDestroy, cuCtxDestroy, 2000, 0)                            \
    ENTRY(cuCtxDestroy, cuCtxDestroy_v2, 4000, 0)                         \
    ENTRY(cuCtxGetCurrent, cuCtxGetCurrent, 4000, 0)                      \
    ENTRY(cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0)                      \
    ENTRY(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, 0)                 \
    ENTRY(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, 0)                   \
    ENTRY(cuCtxGetDevice, cuCtxGetDevice, 2000, 0)                        \
    ENTRY(cuMemAlloc, cuMemAlloc, 2000, 0)                                \
    ENTRY(cuMemAlloc, cuMemAlloc_v2, 3020, 0)                             \
    ENTRY(cuMemAllocPitch, cuMemAllocPitch, 2000, 0)                      \
    ENTRY(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, 0)                   \
    ENTRY(cuMemAllocManaged, cuMemAllocManaged, 6000, 0)                  \
    ENTRY(cuMemFree, cuMemFree, 2000, 0)                                  \
    ENTRY(cuMemFree, cuMemFree_v2, 3020, 0)                               \
    ENTRY(cuMemAllocAsync, cuMemAllocAsync, 11020, 0)                     \
    ENTRY(cuMemAllocAsync, cuMemAllocAsync_ptsz, 11020, 1)                \
    ENTRY(cuMemFreeAsync, cuMemFreeAsync, 11020, 0)                       \
    ENTRY(cuMemFreeAsync, cuMemFreeAsync_ptsz, 11020, 1)                  \
    ENTRY(cuMemsetD8, cuMemsetD8, 2000, 0)                                \
    ENTRY(cuMemsetD8, cuMemsetD8_v2, 3020, 0)                             \
    ENTRY(cuMemsetD8, cuMemsetD8_v2_ptds, 7000, 1)                        \
    ENTRY(cuMemGetInfo, cuMemGetInfo, 2000, 0)                            \
    ENTRY(cuMemGetInfo, cuMemGetInfo_v2, 3020, 0)                         \
    ENTRY(cuGetProcAddress, cuGetProcAddress, 11030, 0)                   \
    ENTRY(cuGetProcAddress, cuGetProcAddress_v2, 12000, 0)

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

static result allocate_narrow(unsigned *at, unsigned bytes)
{
    return cuMemAlloc(at, bytes);
}

static result allocate_wide(address *at, size_t bytes)
{
    return cuMemAlloc_v2(at, bytes);
}

static void *choose_place(const struct entry *entry)
{
    const char *unnamed = getenv("FAKE_CUDA_UNNAMED");
    if (!entry || !unnamed || strcmp(unnamed, entry->base) != 0)
        return entry ? entry->place : NULL;
    return entry->place == (void *)cuMemAlloc ? (void *)allocate_narrow : (void *)allocate_wide;
}

/* The newest that is not newer than the version; one per thread before one that is not, where that is asked for. */
static enum status find(const char *base, int version, uint64_t flags, void **place)
{
    const struct entry *best = NULL;
    enum status status = NO_SUCH_SYMBOL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const struct entry *entry = &entries[i];
        if (strcmp(entry->base, base) != 0 || entry->since > fake_driver_version())
            continue;
        status = status == NO_SUCH_SYMBOL ? VERSION_TOO_LOW : status;
        if (entry->since > version || (entry->per_thread && flags != PER_THREAD_STREAM))
            continue;
        if (!best || entry->per_thread > best->per_thread ||
            (entry->per_thread == best->per_thread && entry->since > best->since))
            best = entry;
        status = FOUND;
    }
    *place = choose_place(best);
    return status;
}

EXPORT result cuGetProcAddress(const char *base, void **place, int version, uint64_t flags)
{
    BEGIN_WITHOUT_INIT;
    REQUIRE(base && place && flags <= FLAGS_MOST && version <= fake_driver_version(), INVALID_VALUE);
    return find(base, version, flags, place) == FOUND ? SUCCESS : NOT_FOUND;
}

/* Success also where there is none: the status says so. */
EXPORT result cuGetProcAddress_v2(const char *base, void **place, int version, uint64_t flags, int *status)
{
    BEGIN_WITHOUT_INIT;
    REQUIRE(base && place && flags <= FLAGS_MOST && version <= fake_driver_version(), INVALID_VALUE);
    enum status found = find(base, version, flags, place);
    if (status)
        *status = (int)found;
    return SUCCESS;
}
