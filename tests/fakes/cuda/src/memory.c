/* Memory as addresses that lead nowhere, without FAKE_CUDA_BACKED; only its sizes count. The oldest ABI has addresses and sizes of 32 bits. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fake.h"

#define BUCKETS 4096
#define ALIGNMENT 512u
#define LOW_START UINT64_C(0x10000000)
#define HIGH_START UINT64_C(0x700000000000)

struct block {
    struct block *next;
    const struct context *context; /* NULL for what goes with none */
    struct pool *pool;
    address address;
    uint64_t bytes;
    int is_backed;
};

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks[BUCKETS];
static uint64_t low = LOW_START, high = HIGH_START;

static struct block **find_bucket(address at) {
    return &blocks[at / ALIGNMENT % BUCKETS];
}

static uint64_t round_up(uint64_t bytes, uint64_t step) {
    return (bytes + step - 1) / step * step;
}

/* What is charged already gets an address. */
result memory_place(address *at, uint64_t bytes, const struct context *context, struct pool *pool, int is_narrow) {
    struct block *block = calloc(1, sizeof *block);
    REQUIRE(block, OUT_OF_MEMORY);
    pthread_mutex_lock(&changing);
    uint64_t *next = is_narrow ? &low : &high;
    *block = (struct block){NULL, context, pool, *next, bytes, 0};
    *next += round_up(bytes, ALIGNMENT);
    if (!is_narrow && fake_number("FAKE_CUDA_BACKED", 0)) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) abort();
        block->address = (address)memory;
        block->is_backed = 1;
    }
    struct block **bucket = find_bucket(block->address);
    block->next = *bucket;
    *bucket = block;
    *at = block->address;
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}

static result allocate(address *at, uint64_t bytes, int is_narrow) {
    const struct context *context = context_current();
    REQUIRE(context, INVALID_CONTEXT);
    REQUIRE(at && bytes > 0, INVALID_VALUE);
    REQUIRE(bytes <= fake_total(context->device), OUT_OF_MEMORY);
    REQUIRE(!is_narrow || low + round_up(bytes, ALIGNMENT) <= UINT32_MAX, OUT_OF_MEMORY);
    result verdict = account_charge(context->device, bytes);
    REQUIRE(verdict == SUCCESS, verdict);
    return memory_place(at, bytes, context, NULL, is_narrow);
}

/* What does not belong to anybody is not valid, and address 0 is nothing to do. */
result memory_release(address at, uint64_t passed_ns) {
    REQUIRE(at, SUCCESS);
    pthread_mutex_lock(&changing);
    struct block **place = find_bucket(at);
    while (*place && (*place)->address != at) place = &(*place)->next;
    struct block *found = *place;
    if (found) *place = found->next;
    pthread_mutex_unlock(&changing);
    if (!found) return graph_memory_free(at);
    if (found->pool) pool_free(found->pool, found->bytes, passed_ns);
    else if (found->context) account_credit(found->context->device, found->bytes);
    if (found->is_backed) munmap((void *)found->address, found->bytes);
    free(found);
    return SUCCESS;
}

void memory_forget(const struct context *context) {
    pthread_mutex_lock(&changing);
    for (int i = 0; i < BUCKETS; i++)
        for (struct block **place = &blocks[i]; *place;) {
            struct block *block = *place;
            if (block->context != context) {
                place = &block->next;
                continue;
            }
            *place = block->next;
            account_credit(context->device, block->bytes);
            free(block);
        }
    pthread_mutex_unlock(&changing);
}

EXPORT result cuMemAlloc(unsigned *at, unsigned bytes) {
    BEGIN;
    address wide = 0;
    result verdict = allocate(at ? &wide : NULL, bytes, 1);
    if (verdict == SUCCESS) *at = (unsigned)wide;
    return verdict;
}

EXPORT result cuMemAlloc_v2(address *at, size_t bytes) {
    BEGIN;
    return allocate(at, bytes, 0);
}

static result allocate_pitch(address *at, uint64_t *pitch, uint64_t width, uint64_t height, int is_narrow) {
    uint64_t rounded, bytes, step = fake_number("FAKE_CUDA_PITCH", 512);
    REQUIRE(width > 0 && height > 0, INVALID_VALUE);
    REQUIRE(!__builtin_add_overflow(width, step - 1, &rounded), OUT_OF_MEMORY);
    *pitch = rounded / step * step;
    REQUIRE(!__builtin_mul_overflow(*pitch, height, &bytes), OUT_OF_MEMORY);
    return allocate(at, bytes, is_narrow);
}

EXPORT result cuMemAllocPitch(unsigned *at, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    BEGIN;
    address wide = 0;
    uint64_t row = 0;
    REQUIRE(at && pitch && (element == 4 || element == 8 || element == 16), INVALID_VALUE);
    result verdict = allocate_pitch(&wide, &row, width, height, 1);
    if (verdict == SUCCESS) {
        *at = (unsigned)wide;
        *pitch = (unsigned)row;
    }
    return verdict;
}

EXPORT result cuMemAllocPitch_v2(address *at, size_t *pitch, size_t width, size_t height, unsigned element) {
    BEGIN;
    uint64_t row = 0;
    REQUIRE(at && pitch && (element == 4 || element == 8 || element == 16), INVALID_VALUE);
    result verdict = allocate_pitch(at, &row, width, height, 0);
    if (verdict == SUCCESS) *pitch = row;
    return verdict;
}

EXPORT result cuMemAllocManaged(address *at, size_t bytes, unsigned flags) {
    BEGIN;
    REQUIRE(flags == 1 || flags == 2, INVALID_VALUE);
    return allocate(at, bytes, 0);
}

EXPORT result cuMemFree(unsigned at) {
    BEGIN;
    return memory_release(at, 0);
}

EXPORT result cuMemFree_v2(address at) {
    BEGIN;
    return memory_release(at, 0);
}

static result clear(address at, uint64_t count) {
    pthread_mutex_lock(&changing);
    const struct block *block = *find_bucket(at);
    while (block && block->address != at) block = block->next;
    int fits = block && count <= block->bytes;
    pthread_mutex_unlock(&changing);
    return fits ? SUCCESS : INVALID_VALUE;
}

EXPORT result cuMemsetD8(unsigned at, unsigned char value, unsigned count) {
    BEGIN;
    (void)value;
    return clear(at, count);
}

EXPORT result cuMemsetD8_v2(address at, unsigned char value, size_t count) {
    BEGIN;
    (void)value;
    return clear(at, count);
}

EXPORT result cuMemsetD8_v2_ptds(address at, unsigned char value, size_t count) {
    BEGIN;
    (void)value;
    return clear(at, count);
}

static result get_info(uint64_t *spare, uint64_t *total) {
    const struct context *context = context_current();
    REQUIRE(context, INVALID_CONTEXT);
    *total = fake_total(context->device);
    *spare = *total - account_used(context->device);
    return SUCCESS;
}

/* Either output may be NULL, and both. */
EXPORT result cuMemGetInfo(unsigned *spare, unsigned *total) {
    BEGIN;
    uint64_t wide_spare, wide_total;
    result verdict = get_info(&wide_spare, &wide_total);
    if (verdict == SUCCESS && spare) *spare = wide_spare > UINT32_MAX ? UINT32_MAX : (unsigned)wide_spare;
    if (verdict == SUCCESS && total) *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned)wide_total;
    return verdict;
}

EXPORT result cuMemGetInfo_v2(size_t *spare, size_t *total) {
    BEGIN;
    uint64_t wide_spare, wide_total;
    result verdict = get_info(&wide_spare, &wide_total);
    if (verdict == SUCCESS && spare) *spare = wide_spare;
    if (verdict == SUCCESS && total) *total = wide_total;
    return verdict;
}
