/*
 * Two processes that share memory by CUDA's IPC: the first has it, the second opens it and reads what the first wrote. Prints
 * what the second has less of its part once it has it open: nothing, as the owner pays.
 *
 * With WITH_CUDA_HEADER the declarations are compared with CUDA's own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_CUDA_HEADER
#include <cuda.h>
#else
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct {
    char reserved[64];
} CUipcMemHandle;
#endif

#define BYTES ((size_t)64 << 20)
#define VALUE 0x5eed5eedu

#define FUNCTIONS                                                              \
    FUNCTION(cuInit, (unsigned))                                               \
    FUNCTION(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                \
    FUNCTION(cuCtxSetCurrent, (CUcontext))                                     \
    FUNCTION(cuCtxSynchronize, (void))                                         \
    FUNCTION(cuMemAlloc_v2, (CUdeviceptr *, size_t))                           \
    FUNCTION(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t))                  \
    FUNCTION(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                   \
    FUNCTION(cuMemGetInfo_v2, (size_t *, size_t *))                            \
    FUNCTION(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr))               \
    FUNCTION(cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned)) \
    FUNCTION(cuIpcCloseMemHandle, (CUdeviceptr))

#define FUNCTION(name, arguments) typedef CUresult(*name##_type) arguments;
FUNCTIONS
#undef FUNCTION
#ifdef WITH_CUDA_HEADER
#define FUNCTION(name, arguments) _Static_assert(__builtin_types_compatible_p(__typeof__(&name), name##_type), #name);
FUNCTIONS
#undef FUNCTION
#endif

static void *driver;

static void check(const char *name, CUresult result) {
    if (result != 0) {
        printf("%s says %d\n", name, (int)result);
        exit(1);
    }
}

#define CALL(name, ...) check(#name, ((name##_type)dlsym(driver, #name))(__VA_ARGS__))

static void start(void) {
    CUcontext context;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) exit(3);
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
}

static int be_second(int from) {
    CUipcMemHandle handle;
    CUdeviceptr at;
    size_t before, after, total;
    unsigned found = 0;
    if (read(from, &handle, sizeof handle) != (ssize_t)sizeof handle) return 4;
    start();
    CALL(cuMemGetInfo_v2, &before, &total);
    CALL(cuIpcOpenMemHandle_v2, &at, handle, 1);
    CALL(cuMemGetInfo_v2, &after, &total);
    CALL(cuMemcpyDtoH_v2, &found, at + BYTES - sizeof found, sizeof found);
    CALL(cuIpcCloseMemHandle, at);
    printf("taken %lld\n", (long long)before - (long long)after);
    return found == VALUE ? 0 : 5;
}

int main(void) {
    int ends[2], status = 0;
    CUipcMemHandle handle;
    CUdeviceptr at;
    if (pipe(ends) != 0) return 2;
    pid_t second = fork();
    if (second == 0) {
        close(ends[1]);
        return be_second(ends[0]);
    }
    start();
    CALL(cuMemAlloc_v2, &at, BYTES);
    CALL(cuMemsetD32_v2, at, VALUE, BYTES / sizeof(unsigned));
    CALL(cuCtxSynchronize);
    CALL(cuIpcGetMemHandle, &handle, at);
    if (write(ends[1], &handle, sizeof handle) != (ssize_t)sizeof handle) return 6;
    waitpid(second, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 7;
}
