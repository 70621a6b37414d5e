/* What the source files of the fake share: the call prologue, handles, and shorthands for the many simple getters. */
#pragma once
#include <string.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-const-variable" /* only one file uses the field tables */
#include "generated.h"
#pragma GCC diagnostic pop

#define EXPORT __attribute__((visibility("default")))
typedef uint32_t result;

struct handle {
    uint32_t gpu;
    int32_t mig; /* -1 for the GPU itself, from MIG_MAX on a GPU instance */
};

extern struct fake_State *fake;

/* What a call is about. `mig` is NULL for a handle of a whole GPU. */
struct subject {
    struct fake_Gpu *gpu;
    struct fake_MigDevice *mig;
    struct fake_GpuInstance *instance; /* NULL unless the handle is of one */
    uint32_t index;                    /* place in the state, not NVML's index */
};

enum need {
    NEED_NOTHING = 0,
    NEED_INIT = 1,
    NEED_GPU = 2,    /* a handle, which may be one of a MIG device */
    NEED_WHOLE = 3,  /* a handle of a whole GPU */
    NEED_CACHED = 4, /* a handle; answered from memory also when the GPU is lost */
    NEED_PART = 5,   /* a handle, which may be one of a GPU instance */
};

/* Counts the call, plays the fault set for it, and resolves the handle. Anything but 0 is the call's answer. */
result fake_begin(int *slot, const char *name, enum need need, const void *handle, struct subject *subject);
result fake_string(const char *text, char *buffer, uint32_t length);
struct handle *fake_handle(uint32_t gpu, int32_t mig);
void fake_sleep(uint64_t nanoseconds);

#define BEGIN(need, handle)                                                \
    static int slot_ = -1;                                                 \
    struct subject on = {NULL, NULL, NULL, ANY_GPU};                       \
    {                                                                      \
        result verdict_ = fake_begin(&slot_, __func__, need, handle, &on); \
        if (verdict_) return verdict_;                                     \
    }                                                                      \
    (void)on

#define REQUIRE(condition, code)  \
    if (!(condition)) return code

/* One number of a whole GPU; absent means not supported. */
#define GET_32(name, member)                                            \
    EXPORT result name(void *device, uint32_t *value) {                 \
        BEGIN(NEED_WHOLE, device);                                      \
        REQUIRE(on.gpu->member != ABSENT_32, NVML_ERROR_NOT_SUPPORTED); \
        *value = on.gpu->member;                                        \
        return 0;                                                       \
    }

#define GET_64(name, member)                                            \
    EXPORT result name(void *device, uint64_t *value) {                 \
        BEGIN(NEED_WHOLE, device);                                      \
        REQUIRE(on.gpu->member != ABSENT_64, NVML_ERROR_NOT_SUPPORTED); \
        *value = on.gpu->member;                                        \
        return 0;                                                       \
    }

/* A percentage with the length of the window it was taken over. */
#define GET_SAMPLED(name, member)                                         \
    EXPORT result name(void *device, uint32_t *value, uint32_t *period) { \
        BEGIN(NEED_WHOLE, device);                                        \
        REQUIRE(on.gpu->member != ABSENT_32, NVML_ERROR_NOT_SUPPORTED);   \
        REQUIRE(on.gpu->mig_mode != 1, NVML_ERROR_NOT_SUPPORTED);         \
        *value = on.gpu->member;                                          \
        *period = 166000;                                                 \
        return 0;                                                         \
    }

#define GET_PAIR(name, first_member, second_member)                           \
    EXPORT result name(void *device, uint32_t *first, uint32_t *second) {     \
        BEGIN(NEED_WHOLE, device);                                            \
        REQUIRE(on.gpu->first_member != ABSENT_32, NVML_ERROR_NOT_SUPPORTED); \
        *first = on.gpu->first_member;                                        \
        *second = on.gpu->second_member;                                      \
        return 0;                                                             \
    }

#define GET_STRING(name, member)                                      \
    EXPORT result name(void *device, char *buffer, uint32_t length) { \
        BEGIN(NEED_CACHED, device);                                   \
        REQUIRE(on.gpu->member[0], NVML_ERROR_NOT_SUPPORTED);         \
        return fake_string(on.gpu->member, buffer, length);           \
    }
