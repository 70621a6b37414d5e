/* See arrays.h. */
#include "memory/arrays.h"

#include "ledger/claim.h"

#define LEVELS_MOST 64u   /* more halvings than any width has bits */
#define UNKNOWN_BITS 128u /* of an element whose format came after this library: the most that any has */

struct shape {
    uint64_t width, height, depth;
    unsigned format, channels, flags;
};

/* Formats whose elements have this many bits whatever the number of channels; BLOCK: in blocks of 4 by 4. */
static const struct {
    uint8_t first, last, bits, is_blocks;
} formats[] = {
    {0x50, 0x50, 32, 0}, {0x91, 0x92, 4, 1},  {0x93, 0x96, 8, 1},  {0x97, 0x98, 4, 1},  {0x99, 0x9e, 8, 1},
    {0x9f, 0x9f, 24, 0}, {0xa1, 0xa1, 24, 0}, {0xa2, 0xa2, 16, 0}, {0xa3, 0xa4, 32, 0}, {0xa5, 0xa5, 16, 0},
    {0xa6, 0xa9, 32, 0}, {0xb0, 0xb0, 12, 0}, {0xb1, 0xb1, 64, 0}, {0xb2, 0xb2, 24, 0}, {0xb3, 0xb3, 48, 0},
    {0xb4, 0xb4, 24, 0}, {0xb5, 0xb5, 48, 0}, {0xc0, 0xc0, 8, 0},  {0xc1, 0xc1, 16, 0}, {0xc2, 0xc2, 32, 0},
    {0xc3, 0xc3, 16, 0}, {0xc4, 0xc4, 32, 0}, {0xc5, 0xc5, 64, 0}, {0xc6, 0xc6, 8, 0},  {0xc7, 0xc7, 16, 0},
    {0xc8, 0xc8, 32, 0}, {0xc9, 0xc9, 16, 0}, {0xca, 0xca, 32, 0}, {0xcb, 0xcb, 64, 0},
};

static unsigned count_bits(const struct shape *shape, bool *is_blocks) {
    *is_blocks = false;
    switch (shape->format) {
    case 0x01:
    case 0x08: return 8 * shape->channels;
    case 0x02:
    case 0x09:
    case 0x10: return 16 * shape->channels;
    case 0x03:
    case 0x0a:
    case 0x20: return 32 * shape->channels;
    default: break;
    }
    for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++)
        if (shape->format >= formats[i].first && shape->format <= formats[i].last) {
            *is_blocks = formats[i].is_blocks;
            return formats[i].bits;
        }
    return UNKNOWN_BITS;
}

static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t at_least_one(uint64_t size) {
    return size ? size : 1;
}

/* 0 where it has no memory of its own: such arrays are given memory that is counted where it is made. */
static uint64_t count_bytes(const struct shape *shape) {
    bool is_blocks;
    uint64_t bits = count_bits(shape, &is_blocks), width = shape->width, height = at_least_one(shape->height);
    if (width == 0 || shape->flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
    if (is_blocks) {
        width = multiply((width - 1) / 4 + 1, 4);
        height = multiply((height - 1) / 4 + 1, 4);
    }
    uint64_t elements = multiply(multiply(width, height), at_least_one(shape->depth));
    uint64_t all = multiply(elements, bits);
    return all == UINT64_MAX ? all : (all + 7) / 8;
}

static uint64_t halve(uint64_t size) {
    return size > 1 ? size / 2 : size;
}

/* Each level has half the width, height and depth of the one before; layers stay as many. */
static uint64_t count_levels(struct shape shape, unsigned levels) {
    uint64_t sum = 0;
    bool is_layered = shape.flags & CUDA_ARRAY3D_LAYERED;
    for (unsigned level = 0; level < levels && level < LEVELS_MOST; level++) {
        if (__builtin_add_overflow(sum, count_bytes(&shape), &sum)) return UINT64_MAX;
        if (shape.width <= 1 && shape.height <= 1 && (is_layered || shape.depth <= 1)) break;
        shape.width = halve(shape.width);
        shape.height = halve(shape.height);
        shape.depth = is_layered ? shape.depth : halve(shape.depth);
    }
    return sum;
}

static CUresult destroy_array(uint64_t key) {
    return DRIVER_CALL(cuArrayDestroy, (CUarray)(uintptr_t)key);
}

static CUresult destroy_mipmap(uint64_t key) {
    return DRIVER_CALL(cuMipmappedArrayDestroy, (CUmipmappedArray)(uintptr_t)key);
}

static CUresult end(const struct claim *claim, CUresult result, CUarray *array) {
    uint64_t key = (uint64_t)(uintptr_t)WRITTEN(result, array);
    return claim_end(claim, result, BLOCK_ARRAY, key, destroy_array);
}

/* The four differ only in the description; the driver says what is wrong with one that is not there. */
#define CREATE(name, depth, flags)                                                                                \
    struct claim claim = {0};                                                                                     \
    struct shape shape = {0};                                                                                     \
    if (wanted)                                                                                                   \
        shape = (struct shape){wanted->Width, wanted->Height, depth, wanted->Format, wanted->NumChannels, flags}; \
    if (!claim_begin(&claim, count_bytes(&shape))) return CUDA_ERROR_OUT_OF_MEMORY;                               \
    return end(&claim, DRIVER_CALL(name, array, wanted), array)

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted) {
    CREATE(cuArrayCreate, 0, 0);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted) {
    CREATE(cuArrayCreate_v2, 0, 0);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted) {
    CREATE(cuArray3DCreate, wanted->Depth, wanted->Flags);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted) {
    CREATE(cuArray3DCreate_v2, wanted->Depth, wanted->Flags);
}

CUresult cuArrayDestroy(CUarray array) {
    return claim_free(BLOCK_ARRAY, (uint64_t)(uintptr_t)array, destroy_array);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted, unsigned levels) {
    struct claim claim;
    struct shape shape = {0};
    if (wanted)
        shape = (struct shape){wanted->Width,  wanted->Height,      wanted->Depth,
                               wanted->Format, wanted->NumChannels, wanted->Flags};
    if (!claim_begin(&claim, count_levels(shape, levels))) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRIVER_CALL(cuMipmappedArrayCreate, array, wanted, levels);
    uint64_t key = (uint64_t)(uintptr_t)WRITTEN(result, array);
    return claim_end(&claim, result, BLOCK_MIPMAP, key, destroy_mipmap);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    return claim_free(BLOCK_MIPMAP, (uint64_t)(uintptr_t)array, destroy_mipmap);
}
