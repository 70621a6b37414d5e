/*
 * CUDA's types, as far as this library needs them, with CUDA's names. A test compiles everything with CUDA's own header in
 * place of this one.
 */
#ifndef VGPU_CUDA_TYPES_H
#define VGPU_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifndef VGPU_WITH_CUDA_HEADER

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* of programs built before CUDA 3.2 */
typedef struct CUctx_st *CUcontext;
typedef struct {
    char bytes[16];
} CUuuid;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_INITIALIZED = 3 };

#endif

_Static_assert(sizeof(CUdeviceptr) == 8 && sizeof(size_t) == 8 && sizeof(CUdeviceptr_v1) == 4, "as in CUDA's own ABI");
_Static_assert(sizeof(CUuuid) == 16 && sizeof(CUresult) == 4 && sizeof(CUdevice) == 4, "as in CUDA's own ABI");

#endif
