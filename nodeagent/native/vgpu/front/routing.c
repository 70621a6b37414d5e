/* See routing.h. */
#include "front/routing.h"

static CUresult route(CUresult result, const char *base, void **place, int version, uint64_t flags) {
    if (result != CUDA_SUCCESS || !base || !place || !*place) return result;
    const struct hook *hook = hooks_before(LIBRARY_CUDA, *place);
    if (!hook) hook = hooks_choose(base, version, flags);
    if (hook) *place = hook->place;
    return result;
}

CUresult cuGetProcAddress(const char *base, void **place, int version, uint64_t flags) {
    return route(DRIVER_CALL(cuGetProcAddress, base, place, version, flags), base, place, version, flags);
}

CUresult cuGetProcAddress_v2(const char *base, void **place, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    return route(DRIVER_CALL(cuGetProcAddress_v2, base, place, version, flags, status), base, place, version, flags);
}

/* Of programs for which every entry point means the stream per thread. */
CUresult cuGetProcAddress_v2_ptsz(const char *base, void **place, int version, uint64_t flags,
                                  CUdriverProcAddressQueryResult *status) {
    CUresult result = DRIVER_CALL(cuGetProcAddress_v2_ptsz, base, place, version, flags, status);
    return route(result, base, place, version, flags | HOOKS_PER_THREAD_STREAM);
}
