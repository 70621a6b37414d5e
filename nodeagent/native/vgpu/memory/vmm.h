/*
 * Memory that is made and mapped apart, within the limit, each with the arguments and answers of the driver's function of
 * that name. It is charged while anything holds it: references to its handle, or places it is mapped at. What comes from
 * another process, or lies in the host's memory, is charged to nobody here.
 */
#ifndef VGPU_VMM_H
#define VGPU_VMM_H

#include "front/driver.h"
#include "front/hooks.h"

HOOK CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *wanted,
                          unsigned long long flags);
HOOK CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
HOOK CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address);
HOOK CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags);
HOOK CUresult cuMemUnmap(CUdeviceptr at, size_t bytes);

/* In the child of a fork. */
void vmm_after_fork(void);

#endif
