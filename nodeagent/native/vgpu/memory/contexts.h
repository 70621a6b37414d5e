/*
 * Contexts, each with the arguments and answers of the driver's function of that name. What one takes of its device is as
 * much as the limits file says, or, where it says nothing, what was measured of a process's first one; what was allocated in
 * one ends with it.
 */
#ifndef VGPU_CONTEXTS_H
#define VGPU_CONTEXTS_H

#include "front/driver.h"
#include "front/hooks.h"

/* From here on the agent sees this process in the usage file. */
HOOK CUresult cuInit(unsigned flags);

HOOK CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device);
HOOK CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
HOOK CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *wanted, int count, unsigned flags,
                             CUdevice device);
HOOK CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *wanted, unsigned flags, CUdevice device);
HOOK CUresult cuCtxDestroy(CUcontext context);
HOOK CUresult cuCtxDestroy_v2(CUcontext context);
HOOK CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
HOOK CUresult cuDevicePrimaryCtxRelease(CUdevice device);
HOOK CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
HOOK CUresult cuDevicePrimaryCtxReset(CUdevice device);
HOOK CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

/* In the child of a fork. */
void contexts_after_fork(void);

#endif
