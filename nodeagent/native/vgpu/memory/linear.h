/*
 * Linear memory within the limit, each with the arguments and answers of the driver's function of that name: reserved
 * before the driver is asked, rolled back where it refuses. What is past the limit is CUDA's own error.
 */
#ifndef VGPU_LINEAR_H
#define VGPU_LINEAR_H

#include "front/driver.h"
#include "front/hooks.h"

HOOK CUresult cuMemAlloc(CUdeviceptr_v1 *at, unsigned bytes);
HOOK CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
HOOK CUresult cuMemAllocPitch(CUdeviceptr_v1 *at, unsigned *pitch, unsigned width, unsigned height, unsigned element);
HOOK CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element);
HOOK CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags);
HOOK CUresult cuMemFree(CUdeviceptr_v1 at);
HOOK CUresult cuMemFree_v2(CUdeviceptr at);
HOOK CUresult cuMemGetInfo(unsigned *spare, unsigned *total);
HOOK CUresult cuMemGetInfo_v2(size_t *spare, size_t *total);
HOOK CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device);
HOOK CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);

#endif
