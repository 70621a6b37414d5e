/*
 * Arrays and mipmapped arrays within the limit, each with the arguments and answers of the driver's function of that name.
 * They are charged with their elements; how the driver lays them out is not known, and it pads some.
 */
#ifndef VGPU_ARRAYS_H
#define VGPU_ARRAYS_H

#include "front/driver.h"
#include "front/hooks.h"

HOOK CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted);
HOOK CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted);
HOOK CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted);
HOOK CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted);
HOOK CUresult cuArrayDestroy(CUarray array);
HOOK CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted, unsigned levels);
HOOK CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);

#endif
