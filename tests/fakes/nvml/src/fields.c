/* The batched getter: each item has its own return code, the call itself succeeds. */
#include "fake.h"

#include <time.h>

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const struct fake_field *find(const struct fake_field *table, size_t count, uint32_t id) {
    for (size_t row = 0; row < count; row++)
        if (table[row].id == id) return &table[row];
    return NULL;
}

/* Reads a member by its offset; a width of 8 for unsigned long long, 4 for unsigned int. */
static result read_member(const void *base, const struct fake_field *field, uint64_t *value) {
    if (field->type == 3) {
        memcpy(value, (const char *)base + field->offset, 8);
        return *value == ABSENT_64 ? NVML_ERROR_NOT_SUPPORTED : 0;
    }
    uint32_t narrow;
    memcpy(&narrow, (const char *)base + field->offset, 4);
    *value = narrow;
    return narrow == ABSENT_32 ? NVML_ERROR_NOT_SUPPORTED : 0;
}

static result read_links(const struct fake_Gpu *gpu, const struct fake_field *field, uint32_t scope, uint64_t *value) {
    REQUIRE(gpu->link_count, NVML_ERROR_NOT_SUPPORTED);
    /* the totals of the old counters are asked without a scope, those by link with one */
    int all = scope == 0xFFFFFFFFu || (field->id < 100 && scope == 0);
    if (!all) {
        REQUIRE(scope < gpu->link_count && gpu->links[scope].present, NVML_ERROR_INVALID_ARGUMENT);
        return read_member(&gpu->links[scope], field, value);
    }
    *value = 0;
    for (uint32_t link = 0; link < gpu->link_count; link++) {
        uint64_t one;
        result code = read_member(&gpu->links[link], field, &one);
        if (code) return code;
        *value += one;
    }
    return 0;
}

static result read_field(const struct fake_Gpu *gpu, uint32_t id, uint32_t scope, uint64_t *value, uint32_t *type) {
    if (id < FIELDS_MAX && gpu->field_codes[id]) return gpu->field_codes[id];
    const struct fake_field *field = find(fake_gpu_fields, COUNT(fake_gpu_fields), id);
    if (field) {
        *type = field->type;
        REQUIRE(id < 3 || id > 6 || gpu->ecc_current == 1, NVML_ERROR_NOT_SUPPORTED);
        return read_member(gpu, field, value);
    }
    if (id == 91 || id == 90) { /* number of links, common speed */
        REQUIRE(gpu->link_count, NVML_ERROR_NOT_SUPPORTED);
        *type = 1;
        *value = id == 91 ? gpu->link_count : gpu->links[0].speed_mbps;
        return 0;
    }
    field = find(fake_link_fields, COUNT(fake_link_fields), id);
    REQUIRE(field, NVML_ERROR_NOT_SUPPORTED);
    *type = field->type;
    return read_links(gpu, field, scope, value);
}

EXPORT result nvmlDeviceGetFieldValues(void *device, int32_t count, struct nvmlFieldValue_t *values) {
    BEGIN(NEED_WHOLE, device);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int32_t item = 0; item < count; item++) {
        struct nvmlFieldValue_t *value = &values[item];
        uint64_t number = 0;
        value->timestamp = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        value->latencyUsec = 1;
        value->nvmlReturn = read_field(on.gpu, value->fieldId, value->scopeId, &number, &value->valueType);
        value->value.ullVal = number;
    }
    return 0;
}
