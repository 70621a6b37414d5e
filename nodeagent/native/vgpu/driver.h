/* The CUDA driver's own functions: what of it this library uses, declared here since CUDA's headers are not needed. */
#ifndef VGPU_DRIVER_H
#define VGPU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* of programs built before CUDA 3.2 */

_Static_assert(sizeof(CUdeviceptr) == 8 && sizeof(size_t) == 8 && sizeof(CUdeviceptr_v1) == 4, "as in CUDA's own ABI");

enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_FOUND = 500 };

/* DRIVER(name, arguments) for each function that is called. */
#define DRIVER_FUNCTIONS                                                                 \
    DRIVER(cuCtxGetCurrent, (CUcontext *))                                               \
    DRIVER(cuCtxGetDevice, (CUdevice *))                                                 \
    DRIVER(cuDeviceGetUuid, (uint8_t *, CUdevice))                                       \
    DRIVER(cuDeviceGetUuid_v2, (uint8_t *, CUdevice))                                    \
    DRIVER(cuDeviceTotalMem, (unsigned *, CUdevice))                                     \
    DRIVER(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                    \
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

/* What the driver's function returns; that it is not found where it is not. */
#define DRIVER_CALL(name, ...)                                  \
    ({                                                          \
        name##_type call_ = (name##_type)driver_find(DRIVER_##name); \
        call_ ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND;      \
    })

#endif
