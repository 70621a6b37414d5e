/* The CUDA driver's own functions: what of it this library uses, declared here since CUDA's headers are not needed. */
#ifndef VGPU_DRIVER_H
#define VGPU_DRIVER_H

#include "cuda_types.h"

/* DRIVER(name, arguments) for each function that is called. */
#define DRIVER_FUNCTIONS                                                                 \
    DRIVER(cuCtxGetCurrent, (CUcontext *))                                               \
    DRIVER(cuCtxGetDevice, (CUdevice *))                                                 \
    DRIVER(cuDeviceGetUuid, (CUuuid *, CUdevice))                                       \
    DRIVER(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                    \
    DRIVER(cuDeviceTotalMem, (unsigned *, CUdevice))                                     \
    DRIVER(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                    \
    DRIVER(cuGetProcAddress, (const char *, void **, int, uint64_t))                      \
    DRIVER(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *))            \
    DRIVER(cuGetProcAddress_v2_ptsz, (const char *, void **, int, uint64_t, int *))       \
    DRIVER(cuMemAlloc, (CUdeviceptr_v1 *, unsigned))                                     \
    DRIVER(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                       \
    DRIVER(cuMemAllocPitch, (CUdeviceptr_v1 *, unsigned *, unsigned, unsigned, unsigned)) \
    DRIVER(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))      \
    DRIVER(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                         \
    DRIVER(cuMemFree, (CUdeviceptr_v1))                                                  \
    DRIVER(cuMemFree_v2, (CUdeviceptr))                                                  \
    DRIVER(cuMemGetInfo, (unsigned *, unsigned *))                                       \
    DRIVER(cuMemGetInfo_v2, (size_t *, size_t *))

enum driver_function {
#define DRIVER(name, arguments) DRIVER_##name,
    DRIVER_FUNCTIONS
#undef DRIVER
        DRIVER_COUNT
};
#define DRIVER(name, arguments) typedef CUresult(*name##_type) arguments;
DRIVER_FUNCTIONS
#undef DRIVER

/* NULL where this driver has no such function, or none is loaded. */
void *driver_find(enum driver_function which);

/* What the driver's function returns; as a driver that was not started where there is none, or it lacks the function. */
#define DRIVER_CALL(name, ...)                                  \
    ({                                                          \
        name##_type call_ = (name##_type)driver_find(DRIVER_##name); \
        call_ ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_INITIALIZED;      \
    })

#endif
