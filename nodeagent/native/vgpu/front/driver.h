/* The CUDA driver's own functions, as far as this library calls them. */
#ifndef VGPU_DRIVER_H
#define VGPU_DRIVER_H

#include "front/cuda_types.h"

#define LAUNCH_TYPES unsigned, unsigned, unsigned, unsigned, unsigned, unsigned

/* DRIVER(name, arguments) for each function that is called. */
#define DRIVER_FUNCTIONS                                                                                           \
    DRIVER(cuArray3DCreate, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *))                                       \
    DRIVER(cuArray3DCreate_v2, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *))                                       \
    DRIVER(cuArrayCreate, (CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *))                                           \
    DRIVER(cuArrayCreate_v2, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *))                                           \
    DRIVER(cuArrayDestroy, (CUarray))                                                                              \
    DRIVER(cuCtxCreate, (CUcontext *, unsigned, CUdevice))                                                         \
    DRIVER(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))                                                      \
    DRIVER(cuCtxCreate_v3, (CUcontext *, CUexecAffinityParam *, int, unsigned, CUdevice))                          \
    DRIVER(cuCtxCreate_v4, (CUcontext *, CUctxCreateParams *, unsigned, CUdevice))                                 \
    DRIVER(cuCtxDestroy, (CUcontext))                                                                              \
    DRIVER(cuCtxDestroy_v2, (CUcontext))                                                                           \
    DRIVER(cuCtxGetCurrent, (CUcontext *))                                                                         \
    DRIVER(cuCtxGetDevice, (CUdevice *))                                                                           \
    DRIVER(cuCtxPopCurrent_v2, (CUcontext *))                                                                      \
    DRIVER(cuCtxPushCurrent_v2, (CUcontext))                                                                       \
    DRIVER(cuCtxSynchronize, (void))                                                                               \
    DRIVER(cuCtxSynchronize_v2, (CUcontext))                                                                       \
    DRIVER(cuDeviceGetCount, (int *))                                                                              \
    DRIVER(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice))                                                  \
    DRIVER(cuDeviceGetGraphMemAttribute, (CUdevice, CUgraphMem_attribute, void *))                                 \
    DRIVER(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice))                                                         \
    DRIVER(cuDeviceGetUuid, (CUuuid *, CUdevice))                                                                  \
    DRIVER(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                               \
    DRIVER(cuDeviceGraphMemTrim, (CUdevice))                                                                       \
    DRIVER(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *))                                              \
    DRIVER(cuDevicePrimaryCtxRelease, (CUdevice))                                                                  \
    DRIVER(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                               \
    DRIVER(cuDevicePrimaryCtxReset, (CUdevice))                                                                    \
    DRIVER(cuDevicePrimaryCtxReset_v2, (CUdevice))                                                                 \
    DRIVER(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                      \
    DRIVER(cuDeviceTotalMem, (unsigned *, CUdevice))                                                               \
    DRIVER(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                              \
    DRIVER(cuEventCreate, (CUevent *, unsigned))                                                                   \
    DRIVER(cuEventDestroy_v2, (CUevent))                                                                           \
    DRIVER(cuEventElapsedTime, (float *, CUevent, CUevent))                                                        \
    DRIVER(cuEventQuery, (CUevent))                                                                                \
    DRIVER(cuEventRecord, (CUevent, CUstream))                                                                     \
    DRIVER(cuEventRecord_ptsz, (CUevent, CUstream))                                                                \
    DRIVER(cuEventSynchronize, (CUevent))                                                                          \
    DRIVER(cuGetProcAddress, (const char *, void **, int, cuuint64_t))                                             \
    DRIVER(cuGetProcAddress_v2, (const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))        \
    DRIVER(cuGetProcAddress_v2_ptsz, (const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))   \
    DRIVER(cuGraphChildGraphNodeGetGraph, (CUgraphNode, CUgraph *))                                                \
    DRIVER(cuGraphExecDestroy, (CUgraphExec))                                                                      \
    DRIVER(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *))                                                    \
    DRIVER(cuGraphInstantiate, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t))                            \
    DRIVER(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                              \
    DRIVER(cuGraphInstantiateWithParams, (CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *))                \
    DRIVER(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *))           \
    DRIVER(cuGraphInstantiate_v2, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t))                         \
    DRIVER(cuGraphLaunch, (CUgraphExec, CUstream))                                                                 \
    DRIVER(cuGraphLaunch_ptsz, (CUgraphExec, CUstream))                                                            \
    DRIVER(cuGraphMemAllocNodeGetParams, (CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS *))                              \
    DRIVER(cuGraphMemFreeNodeGetParams, (CUgraphNode, CUdeviceptr *))                                              \
    DRIVER(cuGraphNodeGetType, (CUgraphNode, CUgraphNodeType *))                                                   \
    DRIVER(cuGraphUpload, (CUgraphExec, CUstream))                                                                 \
    DRIVER(cuGraphUpload_ptsz, (CUgraphExec, CUstream))                                                            \
    DRIVER(cuInit, (unsigned))                                                                                     \
    DRIVER(cuLaunch, (CUfunction))                                                                                 \
    DRIVER(cuLaunchCooperativeKernel, (CUfunction, LAUNCH_TYPES, unsigned, CUstream, void **))                     \
    DRIVER(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS *, unsigned, unsigned))                       \
    DRIVER(cuLaunchCooperativeKernel_ptsz, (CUfunction, LAUNCH_TYPES, unsigned, CUstream, void **))                \
    DRIVER(cuLaunchGrid, (CUfunction, int, int))                                                                   \
    DRIVER(cuLaunchGridAsync, (CUfunction, int, int, CUstream))                                                    \
    DRIVER(cuLaunchKernel, (CUfunction, LAUNCH_TYPES, unsigned, CUstream, void **, void **))                       \
    DRIVER(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **))                               \
    DRIVER(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *, CUfunction, void **, void **))                          \
    DRIVER(cuLaunchKernel_ptsz, (CUfunction, LAUNCH_TYPES, unsigned, CUstream, void **, void **))                  \
    DRIVER(cuMemAlloc, (CUdeviceptr_v1 *, unsigned))                                                               \
    DRIVER(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                                     \
    DRIVER(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream))                                                \
    DRIVER(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                               \
    DRIVER(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                          \
    DRIVER(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                                   \
    DRIVER(cuMemAllocPitch, (CUdeviceptr_v1 *, unsigned *, unsigned, unsigned, unsigned))                          \
    DRIVER(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                                \
    DRIVER(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                 \
    DRIVER(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
    DRIVER(cuMemFree, (CUdeviceptr_v1))                                                                            \
    DRIVER(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                                \
    DRIVER(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream))                                                           \
    DRIVER(cuMemFree_v2, (CUdeviceptr))                                                                            \
    DRIVER(cuMemGetDefaultMemPool, (CUmemoryPool *, CUmemLocation *, CUmemAllocationType))                         \
    DRIVER(cuMemGetInfo, (unsigned *, unsigned *))                                                                 \
    DRIVER(cuMemGetInfo_v2, (size_t *, size_t *))                                                                  \
    DRIVER(cuMemGetMemPool, (CUmemoryPool *, CUmemLocation *, CUmemAllocationType))                                \
    DRIVER(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))              \
    DRIVER(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *))                                              \
    DRIVER(cuMemPoolDestroy, (CUmemoryPool))                                                                       \
    DRIVER(cuMemPoolGetAttribute, (CUmemoryPool, CUmemPool_attribute, void *))                                     \
    DRIVER(cuMemPoolTrimTo, (CUmemoryPool, size_t))                                                                \
    DRIVER(cuMemRelease, (CUmemGenericAllocationHandle))                                                           \
    DRIVER(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *, void *))                                  \
    DRIVER(cuMemUnmap, (CUdeviceptr, size_t))                                                                      \
    DRIVER(cuMipmappedArrayCreate, (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned))                \
    DRIVER(cuMipmappedArrayDestroy, (CUmipmappedArray))                                                            \
    DRIVER(cuStreamGetCtx, (CUstream, CUcontext *))                                                                \
    DRIVER(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus *))                                               \
    DRIVER(cuStreamIsCapturing_ptsz, (CUstream, CUstreamCaptureStatus *))                                          \
    DRIVER(cuStreamSynchronize, (CUstream))                                                                        \
    DRIVER(cuStreamSynchronize_ptsz, (CUstream))                                                                   \
    DRIVER(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *))

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
#define DRIVER_CALL(name, ...)                                       \
    ({                                                               \
        name##_type call_ = (name##_type)driver_find(DRIVER_##name); \
        call_ ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_INITIALIZED;     \
    })

/* What the driver has written: nothing where it failed, and where a driver lets a program want none. */
#define WRITTEN(result, output) ((result) == CUDA_SUCCESS && (output) ? *(output) : 0)

#endif
