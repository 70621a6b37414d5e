/* See vmm.h. */
#include "memory/vmm.h"

#include <stdlib.h>
#include <string.h>

#include "ledger/claim.h"
#include "ledger/devices.h"
#include "ledger/files.h"
#include "ledger/ledger.h"
#include "ledger/lock.h"

#define BUCKETS 1024u

/* Found by its handle as long as anything holds it. */
struct physical {
    struct physical *next;
    CUmemGenericAllocationHandle handle;
    struct claim claim;
    uint64_t references;
    uint64_t maps;
};

struct mapping {
    struct mapping *next;
    CUdeviceptr at;
    size_t bytes;
    struct physical *physical;
};

/* Held while the driver may let go of memory: it may give the same handle or address to others at once. */
static struct lock changing;
static struct physical *physicals[BUCKETS];
static struct mapping *mappings[BUCKETS];

static unsigned choose_bucket(uint64_t key) {
    return (unsigned)(key * UINT64_C(0x9e3779b97f4a7c15) >> 54);
}
_Static_assert(BUCKETS == 1u << (64 - 54), "as many as the bits above choose from");

static struct physical *find(CUmemGenericAllocationHandle handle) {
    struct physical *each = physicals[choose_bucket(handle)];
    while (each && each->handle != handle) each = each->next;
    return each;
}

static void end_if_unheld(struct physical *physical) {
    if (physical->references || physical->maps) return;
    struct physical **place = &physicals[choose_bucket(physical->handle)];
    while (*place != physical) place = &(*place)->next;
    *place = physical->next;
    claim_drop(&physical->claim);
    free(physical);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *wanted,
                     unsigned long long flags) {
    bool is_ours = wanted && wanted->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct claim claim;
    if (!claim_begin_on(&claim, is_ours ? devices_find_slot(wanted->location.id) : FILES_NO_SLOT, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMemCreate, handle, bytes, wanted, flags);
    CUmemGenericAllocationHandle made = WRITTEN(result, handle);
    struct physical *physical = result == CUDA_SUCCESS && claim.counted ? malloc(sizeof *physical) : NULL;
    if (physical) {
        lock_take(&changing);
        struct physical **bucket = &physicals[choose_bucket(made)];
        *physical = (struct physical){*bucket, made, claim, 1, 0};
        *bucket = physical;
        lock_give(&changing);
    } else if (result == CUDA_SUCCESS && claim.counted) {
        DRIVER_CALL(cuMemRelease, made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) claim_drop(&claim);
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    lock_take(&changing);
    CUresult result = DRIVER_CALL(cuMemRelease, handle);
    struct physical *physical = result == CUDA_SUCCESS ? find(handle) : NULL;
    if (physical && physical->references > 0) {
        physical->references--;
        end_if_unheld(physical);
    }
    lock_give(&changing);
    return result;
}

/* The driver gives the handle that the memory was mapped by. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    lock_take(&changing);
    CUresult result = DRIVER_CALL(cuMemRetainAllocationHandle, handle, address);
    struct physical *physical = result == CUDA_SUCCESS ? find(WRITTEN(result, handle)) : NULL;
    if (physical) physical->references++;
    lock_give(&changing);
    return result;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    struct mapping *mapping = malloc(sizeof *mapping), **bucket = &mappings[choose_bucket(at)];
    if (!mapping) return CUDA_ERROR_OUT_OF_MEMORY;
    lock_take(&changing);
    CUresult result = DRIVER_CALL(cuMemMap, at, bytes, offset, handle, flags);
    struct physical *physical = result == CUDA_SUCCESS ? find(handle) : NULL;
    if (physical) {
        physical->maps++;
        *mapping = (struct mapping){*bucket, at, bytes, physical};
        *bucket = mapping;
    } else free(mapping);
    lock_give(&changing);
    return result;
}

/* The mapping at the start of what is left of a range, or any within it. */
static struct mapping *take_mapping(CUdeviceptr at, size_t bytes) {
    unsigned first = choose_bucket(at);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct mapping **place = &mappings[(first + i) % BUCKETS]; *place; place = &(*place)->next)
            if ((*place)->at - at < bytes) {
                struct mapping *found = *place;
                *place = found->next;
                return found;
            }
    return NULL;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    lock_take(&changing);
    CUresult result = DRIVER_CALL(cuMemUnmap, at, bytes);
    struct mapping *mapping;
    while (result == CUDA_SUCCESS && bytes > 0 && (mapping = take_mapping(at, bytes))) {
        size_t step = mapping->at == at && mapping->bytes <= bytes ? mapping->bytes : 0;
        mapping->physical->maps--;
        end_if_unheld(mapping->physical);
        free(mapping);
        at += step;
        bytes -= step;
    }
    lock_give(&changing);
    return result;
}

void vmm_after_fork(void) {
    memset(physicals, 0, sizeof physicals);
    memset(mappings, 0, sizeof mappings);
    atomic_store(&changing.held, 0);
}
