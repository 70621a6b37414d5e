/* Arrays and mipmapped arrays: as many bytes as their elements have, without the padding that real ones get. */
#include <pthread.h>
#include <stdlib.h>

#include "fake.h"

#define LAYERED 0x01u
#define SPARSE 0x40u
#define DEFERRED 0x80u

struct array {
    struct array *next;
    const struct context *context;
    uint64_t bytes;
    int is_mipmap;
};
struct narrow {
    unsigned width, height, format, channels;
};
struct wide {
    size_t width, height;
    unsigned format, channels;
};
struct narrow3d {
    unsigned width, height, depth, format, channels, flags;
};
struct wide3d {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct array *arrays;

/* Bits of an element: 0 for a format that this driver does not know. */
static uint64_t element_bits(unsigned format, unsigned channels) {
    switch (format) {
    case 0x01:
    case 0x08: return channels * 8;
    case 0x02:
    case 0x09:
    case 0x10: return channels * 16;
    case 0x03:
    case 0x0a:
    case 0x20: return channels * 32;
    case 0x91: return 4; /* BC1: blocks of 4 by 4 in 8 bytes */
    case 0x93: return 8;
    case 0xb0: return 12; /* NV12 */
    case 0xc5: return 64; /* four channels of 16 bits */
    default: return 0;
    }
}

static uint64_t count(const struct wide3d *wanted) {
    uint64_t width = wanted->width, height = wanted->height ? wanted->height : 1,
             depth = wanted->depth ? wanted->depth : 1;
    if (wanted->format >= 0x91 && wanted->format <= 0x9e) {
        width = (width + 3) & ~UINT64_C(3);
        height = (height + 3) & ~UINT64_C(3);
    }
    return wanted->flags & (SPARSE | DEFERRED)
               ? 0
               : (width * height * depth * element_bits(wanted->format, wanted->channels) + 7) / 8;
}

static result create(struct array **made, const struct wide3d *wanted, uint64_t bytes, int is_mipmap) {
    const struct context *context = context_current();
    REQUIRE(context, INVALID_CONTEXT);
    REQUIRE(made && wanted->width > 0 && element_bits(wanted->format, wanted->channels), INVALID_VALUE);
    result verdict = account_charge(context->device, bytes);
    REQUIRE(verdict == SUCCESS, verdict);
    struct array *array = calloc(1, sizeof *array);
    REQUIRE(array, OUT_OF_MEMORY);
    pthread_mutex_lock(&changing);
    *array = (struct array){arrays, context, bytes, is_mipmap};
    arrays = array;
    pthread_mutex_unlock(&changing);
    *made = array;
    return SUCCESS;
}

static result destroy(const struct array *array, int is_mipmap) {
    pthread_mutex_lock(&changing);
    struct array **place = &arrays;
    while (*place && (*place != array || (*place)->is_mipmap != is_mipmap)) place = &(*place)->next;
    struct array *found = *place;
    if (found) *place = found->next;
    pthread_mutex_unlock(&changing);
    REQUIRE(found, INVALID_HANDLE);
    account_credit(found->context->device, found->bytes);
    free(found);
    return SUCCESS;
}

void array_forget(const struct context *context) {
    pthread_mutex_lock(&changing);
    for (struct array **place = &arrays; *place;) {
        struct array *array = *place;
        if (array->context != context) {
            place = &array->next;
            continue;
        }
        *place = array->next;
        account_credit(context->device, array->bytes);
        free(array);
    }
    pthread_mutex_unlock(&changing);
}

EXPORT result cuArrayCreate(struct array **array, const struct narrow *wanted) {
    BEGIN;
    REQUIRE(wanted, INVALID_VALUE);
    struct wide3d all = {wanted->width, wanted->height, 0, wanted->format, wanted->channels, 0};
    return create(array, &all, count(&all), 0);
}

EXPORT result cuArrayCreate_v2(struct array **array, const struct wide *wanted) {
    BEGIN;
    REQUIRE(wanted, INVALID_VALUE);
    struct wide3d all = {wanted->width, wanted->height, 0, wanted->format, wanted->channels, 0};
    return create(array, &all, count(&all), 0);
}

EXPORT result cuArray3DCreate(struct array **array, const struct narrow3d *wanted) {
    BEGIN;
    REQUIRE(wanted, INVALID_VALUE);
    struct wide3d all = {wanted->width, wanted->height, wanted->depth, wanted->format, wanted->channels, wanted->flags};
    return create(array, &all, count(&all), 0);
}

EXPORT result cuArray3DCreate_v2(struct array **array, const struct wide3d *wanted) {
    BEGIN;
    REQUIRE(wanted, INVALID_VALUE);
    return create(array, wanted, count(wanted), 0);
}

EXPORT result cuArrayDestroy(struct array *array) {
    BEGIN;
    return destroy(array, 0);
}

EXPORT result cuMipmappedArrayCreate(struct array **array, const struct wide3d *wanted, unsigned levels) {
    BEGIN;
    REQUIRE(wanted && levels > 0, INVALID_VALUE);
    uint64_t bytes = 0;
    struct wide3d level = *wanted;
    while (levels-- > 0) {
        bytes += count(&level);
        if (level.width == 1 && level.height <= 1 && (level.depth <= 1 || level.flags & LAYERED)) break;
        level.width = level.width > 1 ? level.width >> 1 : 1;
        level.height = level.height > 1 ? level.height >> 1 : level.height;
        if (!(level.flags & LAYERED)) level.depth = level.depth > 1 ? level.depth >> 1 : level.depth;
    }
    return create(array, wanted, bytes, 1);
}

EXPORT result cuMipmappedArrayDestroy(struct array *array) {
    BEGIN;
    return destroy(array, 1);
}
