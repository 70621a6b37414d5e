/* Memory in the order of streams, each with the arguments and answers of the driver's function of that name. */
#ifndef VGPU_STREAM_MEMORY_H
#define VGPU_STREAM_MEMORY_H

#include "front/driver.h"
#include "front/hooks.h"

HOOK CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream stream);
HOOK CUresult cuMemAllocAsync_ptsz(CUdeviceptr *at, size_t bytes, CUstream stream);
HOOK CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream);
HOOK CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *at, size_t bytes, CUmemoryPool handle, CUstream stream);
HOOK CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream);
HOOK CUresult cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream);
HOOK CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties);
HOOK CUresult cuMemPoolDestroy(CUmemoryPool handle);
HOOK CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep);
HOOK CUresult cuMemGetDefaultMemPool(CUmemoryPool *handle, CUmemLocation *location, CUmemAllocationType type);
HOOK CUresult cuMemGetMemPool(CUmemoryPool *handle, CUmemLocation *location, CUmemAllocationType type);

/* Where the driver gives back what pools no longer need. */
HOOK CUresult cuStreamSynchronize(CUstream stream);
HOOK CUresult cuStreamSynchronize_ptsz(CUstream stream);
HOOK CUresult cuEventSynchronize(CUevent event);
HOOK CUresult cuCtxSynchronize(void);
HOOK CUresult cuCtxSynchronize_v2(CUcontext context);

#endif
