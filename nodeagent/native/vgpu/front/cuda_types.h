/*
 * CUDA's types, as far as this library needs them, with CUDA's names. A test compiles everything with CUDA's own header in
 * place of these.
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
typedef unsigned long long CUmemGenericAllocationHandle;
typedef unsigned long long cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef int CUarray_format;
typedef int CUgraphNodeType;
typedef int CUmemPool_attribute;
typedef int CUgraphMem_attribute;
typedef int CUgraphInstantiateResult;
typedef int CUmemAllocationType;
typedef int CUstreamCaptureStatus;
typedef int CUstreamCaptureMode;
typedef int CUdriverProcAddressQueryResult;
/* Passed on as they came. */
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCreateParams_st CUctxCreateParams;

typedef struct {
    char bytes[16];
} CUuuid;

typedef struct {
    unsigned Width, Height;
    CUarray_format Format;
    unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
    size_t Width, Height;
    CUarray_format Format;
    unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    unsigned Width, Height, Depth;
    CUarray_format Format;
    unsigned NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
    size_t Width, Height, Depth;
    CUarray_format Format;
    unsigned NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
    int type, id;
} CUmemLocation;

typedef struct {
    CUmemAllocationType type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
    CUmemAllocationType allocType;
    int handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
    CUmemPoolProps poolProps;
    const void *accessDescs;
    size_t accessDescCount, bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
    cuuint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    CUfunction function;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_INITIALIZED = 3 };
enum { CUDA_ERROR_NOT_READY = 600 };
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5, CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7 };
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_GRAPH_NODE_TYPE_GRAPH = 4, CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10, CU_GRAPH_NODE_TYPE_MEM_FREE = 11 };
enum { CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2 };
enum { CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2 };
#define CUDA_ARRAY3D_LAYERED 0x01
#define CUDA_ARRAY3D_SPARSE 0x40
#define CUDA_ARRAY3D_DEFERRED_MAPPING 0x80

#endif

_Static_assert(sizeof(CUdeviceptr) == 8 && sizeof(size_t) == 8 && sizeof(CUdeviceptr_v1) == 4, "as in CUDA's own ABI");
_Static_assert(sizeof(CUuuid) == 16 && sizeof(CUresult) == 4 && sizeof(CUdevice) == 4, "as in CUDA's own ABI");
_Static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR_v1) == 16 && sizeof(CUDA_ARRAY_DESCRIPTOR) == 24, "as in CUDA's own ABI");
_Static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR_v1) == 24 && sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40,
               "as in CUDA's own ABI");
_Static_assert(offsetof(CUDA_ARRAY_DESCRIPTOR, Format) == 16 && offsetof(CUDA_ARRAY3D_DESCRIPTOR, Flags) == 32,
               "likewise");
_Static_assert(sizeof(CUmemAllocationProp) == 32 && offsetof(CUmemAllocationProp, location) == 8, "likewise");
_Static_assert(sizeof(CUmemPoolProps) == 88 && offsetof(CUmemPoolProps, location) == 8, "likewise");
_Static_assert(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize) == 104, "likewise");
_Static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120, "likewise");
_Static_assert(sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == 32 &&
                   offsetof(CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream) == 8,
               "likewise");
_Static_assert(offsetof(CUlaunchConfig, hStream) == 32 && offsetof(CUDA_LAUNCH_PARAMS, hStream) == 40, "likewise");

#endif
