/* NVLink. */
#include "fake.h"

static result find_link(const struct fake_Gpu *gpu, uint32_t number, const struct fake_Link **link) {
    REQUIRE(number < LINKS_MAX, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(number < gpu->link_count && gpu->links[number].present, NVML_ERROR_NOT_SUPPORTED);
    *link = &gpu->links[number];
    return 0;
}

#define FIND_LINK()                                       \
    BEGIN(NEED_WHOLE, device);                            \
    const struct fake_Link *link = NULL;                  \
    {                                                     \
        result found_ = find_link(on.gpu, number, &link); \
        if (found_) return found_;                        \
    }

EXPORT result nvmlDeviceGetNvLinkState(void *device, uint32_t number, uint32_t *active) {
    FIND_LINK()
    *active = link->active;
    return 0;
}

EXPORT result nvmlDeviceGetNvLinkVersion(void *device, uint32_t number, uint32_t *version) {
    FIND_LINK()
    *version = link->version;
    return 0;
}

EXPORT result nvmlDeviceGetNvLinkRemoteDeviceType(void *device, uint32_t number, uint32_t *type) {
    FIND_LINK()
    REQUIRE(link->active, NVML_ERROR_NOT_SUPPORTED);
    *type = link->remote_type;
    return 0;
}

EXPORT result nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, uint32_t number, struct nvmlPciInfo_t *info) {
    FIND_LINK()
    REQUIRE(link->active && link->remote_bus_id[0], NVML_ERROR_NOT_SUPPORTED);
    memset(info, 0, sizeof(*info));
    return fake_string(link->remote_bus_id, info->busId, sizeof(info->busId));
}

EXPORT result nvmlDeviceGetNvLinkErrorCounter(void *device, uint32_t number, uint32_t counter, uint64_t *value) {
    FIND_LINK()
    const uint64_t counts[] = {link->replay_count, link->recovery_count, link->crc_flit_count, link->crc_data_count};
    REQUIRE(counter < 4, NVML_ERROR_INVALID_ARGUMENT);
    *value = counts[counter];
    return 0;
}
