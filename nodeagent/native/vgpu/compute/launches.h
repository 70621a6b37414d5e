/*
 * Everything that makes the device work, each with the arguments and answers of the driver's function of that name: where
 * its time is limited, a launch pays what its function took before.
 */
#ifndef VGPU_LAUNCHES_H
#define VGPU_LAUNCHES_H

#include "front/driver.h"
#include "front/hooks.h"

#define LAUNCH_SHAPE                                                                                        \
    unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z

HOOK CUresult cuLaunchKernel(CUfunction function, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **arguments,
                             void **extra);
HOOK CUresult cuLaunchKernel_ptsz(CUfunction function, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **arguments,
                                  void **extra);
HOOK CUresult cuLaunchKernelEx(const CUlaunchConfig *shape, CUfunction function, void **arguments, void **extra);
HOOK CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *shape, CUfunction function, void **arguments, void **extra);
HOOK CUresult cuLaunchCooperativeKernel(CUfunction function, LAUNCH_SHAPE, unsigned shared, CUstream stream,
                                        void **arguments);
HOOK CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, LAUNCH_SHAPE, unsigned shared, CUstream stream,
                                             void **arguments);
HOOK CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned count, unsigned flags);
HOOK CUresult cuLaunch(CUfunction function);
HOOK CUresult cuLaunchGrid(CUfunction function, int width, int height);
HOOK CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream);
HOOK CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream);
HOOK CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream);

#endif
