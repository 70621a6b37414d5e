/*
 * Linear memory within the limit, each with the arguments and answers of the driver's function of that name: reserved
 * before the driver is asked, rolled back where it refuses. What is past the limit is CUDA's own error.
 */
#ifndef VGPU_LINEAR_H
#define VGPU_LINEAR_H

#include "driver.h"

CUresult vgpu_cuMemAlloc(CUdeviceptr_v1 *at, unsigned bytes);
CUresult vgpu_cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
CUresult vgpu_cuMemAllocPitch(CUdeviceptr_v1 *at, unsigned *pitch, unsigned width, unsigned height, unsigned element);
CUresult vgpu_cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element);
CUresult vgpu_cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags);
CUresult vgpu_cuMemFree(CUdeviceptr_v1 at);
CUresult vgpu_cuMemFree_v2(CUdeviceptr at);
CUresult vgpu_cuMemGetInfo(unsigned *spare, unsigned *total);
CUresult vgpu_cuMemGetInfo_v2(size_t *spare, size_t *total);
CUresult vgpu_cuDeviceTotalMem(unsigned *bytes, CUdevice device);
CUresult vgpu_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);

#endif
