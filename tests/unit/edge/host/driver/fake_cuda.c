/* A CUDA driver library that misbehaves as the environment says. Two GPUs with 64 KiB each. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char memory[65536];
static int current = -1;

static int fail(const char *name) {
    const char *wanted = getenv("FAKE_CUDA_FAIL");
    const char *code = getenv("FAKE_CUDA_CODE");
    const char *gpu = getenv("FAKE_CUDA_GPU");
    if (!wanted || strcmp(wanted, name) || (gpu && current != atoi(gpu))) return 0;
    if (getenv("FAKE_CUDA_HANG"))
        for (;;) sleep(60);
    if (getenv("FAKE_CUDA_CRASH")) abort();
    return code ? atoi(code) : 999;
}

int cuInit(unsigned flags) {
    return flags ? 1 : fail("cuInit");
}
int cuDeviceGetCount(int *count) {
    *count = 2;
    return fail("cuDeviceGetCount");
}
int cuDeviceGet(int *device, int ordinal) {
    *device = current = ordinal;
    return fail("cuDeviceGet");
}
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    *context = memory;
    return flags || device != current ? 1 : fail("cuCtxCreate_v2");
}
int cuCtxDestroy_v2(void *context) {
    return context != memory ? 201 : fail("cuCtxDestroy_v2");
}
int cuMemAlloc_v2(uint64_t *at, size_t size) {
    *at = (uint64_t)memory;
    return size > sizeof memory ? 2 : fail("cuMemAlloc_v2");
}
int cuMemFree_v2(uint64_t at) {
    return at != (uint64_t)memory ? 1 : fail("cuMemFree_v2");
}
int cuMemcpyHtoD_v2(uint64_t at, const void *from, size_t size) {
    memcpy((void *)at, from, size);
    return fail("cuMemcpyHtoD_v2");
}
int cuMemcpyDtoH_v2(void *to, uint64_t at, size_t size) {
    memcpy(to, (void *)at, size);
    if (getenv("FAKE_CUDA_CORRUPT")) ((unsigned char *)to)[size - 1] ^= 1;
    return fail("cuMemcpyDtoH_v2");
}
int cuGetErrorName(int code, const char **name) {
    *name = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
    return code == 802 ? 0 : 1;
}
