/* See hooks.h. */
#include "hooks.h"

#include <stdatomic.h>
#include <stddef.h>

#include "text.h"

#define KNOWN_VERSION 13050 /* of CUDA: in a later one a base name may mean what is not known here */

#define HOOKS                                                                      \
    CUDA(cuDeviceTotalMem, cuDeviceTotalMem, 2000, 0)                              \
    CUDA(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0)                           \
    CUDA(cuGetProcAddress, cuGetProcAddress, 11030, 0)                             \
    CUDA(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0)                          \
    CUDA(cuGetProcAddress_v2_ptsz, cuGetProcAddress, 12000, 1)                     \
    CUDA(cuMemAlloc, cuMemAlloc, 2000, 0)                                          \
    CUDA(cuMemAllocManaged, cuMemAllocManaged, 6000, 0)                            \
    CUDA(cuMemAllocPitch, cuMemAllocPitch, 2000, 0)                                \
    CUDA(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0)                             \
    CUDA(cuMemAlloc_v2, cuMemAlloc, 3020, 0)                                       \
    CUDA(cuMemFree, cuMemFree, 2000, 0)                                            \
    CUDA(cuMemFree_v2, cuMemFree, 3020, 0)                                         \
    CUDA(cuMemGetInfo, cuMemGetInfo, 2000, 0)                                      \
    CUDA(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0)

#define CUDA(symbol, base, since, per_thread) extern char symbol##_place[] __asm__(#symbol);
HOOKS
#undef CUDA

/* In the order of their symbols, as strcmp has it. */
static const struct hook hooks[] = {
#define CUDA(symbol, base, since, per_thread) {#symbol, #base, symbol##_place, since, per_thread, LIBRARY_CUDA},
    HOOKS
#undef CUDA
};
#define COUNT (sizeof hooks / sizeof *hooks)

static _Atomic(void *) originals[COUNT];
static atomic_int filled[LIBRARIES];

/* Once the library is there; whoever comes meanwhile finds the same. */
static void fill(enum library library)
{
    if (atomic_load_explicit(&filled[library], memory_order_acquire) || !loader_library(library))
        return;
    for (size_t i = 0; i < COUNT; i++)
        if (hooks[i].library == library)
            atomic_store_explicit(&originals[i], loader_find(library, hooks[i].symbol), memory_order_relaxed);
    atomic_store_explicit(&filled[library], 1, memory_order_release);
}

const struct hook *hooks_find(const char *symbol)
{
    size_t low = 0, high = COUNT;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = text_compare(symbol, hooks[middle].symbol);
        if (order == 0)
            return &hooks[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void *hooks_original(const struct hook *hook)
{
    fill(hook->library);
    return atomic_load_explicit(&originals[hook - hooks], memory_order_acquire);
}

const struct hook *hooks_before(enum library library, const void *address)
{
    fill(library);
    for (size_t i = 0; address && i < COUNT; i++)
        if (hooks[i].library == library && atomic_load_explicit(&originals[i], memory_order_relaxed) == address)
            return &hooks[i];
    return NULL;
}

/* The newest that is not newer than the version; one per thread before one that is not, where that is asked for. */
const struct hook *hooks_choose(const char *base, int version, unsigned long long flags)
{
    const struct hook *best = NULL;
    for (size_t i = 0; i < COUNT && version <= KNOWN_VERSION; i++) {
        const struct hook *hook = &hooks[i];
        if (!hook->base || text_compare(hook->base, base) != 0 || hook->since > version || !hooks_original(hook) ||
            (hook->per_thread && flags != HOOKS_PER_THREAD_STREAM))
            continue;
        if (!best || hook->per_thread > best->per_thread ||
            (hook->per_thread == best->per_thread && hook->since > best->since))
            best = hook;
    }
    return best;
}
