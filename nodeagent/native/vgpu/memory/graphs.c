/* See graphs.h. */
#include "memory/graphs.h"

#include <stdlib.h>

#include "ledger/claim.h"
#include "ledger/devices.h"
#include "ledger/files.h"
#include "ledger/ledger.h"

#define DEPTH_MOST 16u /* of graphs within graphs */

/* What the nodes of a graph allocate, by the driver's number of the device. */
struct need {
    uint64_t bytes[VGPU_DEVICES];
    CUdevice devices[VGPU_DEVICES];
    unsigned count;
};

static void add(struct need *need, CUdevice device, uint64_t bytes)
{
    unsigned i = 0;
    while (i < need->count && need->devices[i] != device)
        i++;
    if (i == VGPU_DEVICES)
        return;
    if (i == need->count)
        need->devices[need->count++] = device;
    if (__builtin_add_overflow(need->bytes[i], bytes, &need->bytes[i]))
        need->bytes[i] = UINT64_MAX;
}

static void add_up(struct need *need, CUgraph graph, unsigned depth);

static void add_node(struct need *need, CUgraphNode node, unsigned depth)
{
    CUgraphNodeType type;
    CUgraph inner;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    if (DRIVER_CALL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        DRIVER_CALL(cuGraphMemAllocNodeGetParams, node, &wanted) == CUDA_SUCCESS &&
        wanted.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        add(need, wanted.poolProps.location.id, wanted.bytesize);
    else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MOST &&
             DRIVER_CALL(cuGraphChildGraphNodeGetGraph, node, &inner) == CUDA_SUCCESS)
        add_up(need, inner, depth + 1);
}

static void add_up(struct need *need, CUgraph graph, unsigned depth)
{
    size_t count = 0;
    if (DRIVER_CALL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes && DRIVER_CALL(cuGraphGetNodes, graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            add_node(need, nodes[i], depth);
    free(nodes);
}

static void drop(const struct claim *claims, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        claim_drop(&claims[i]);
}

/* One claim for each device; none where one of them is past its limit. */
static bool begin(struct claim claims[VGPU_DEVICES], const struct need *need)
{
    for (unsigned i = 0; i < need->count; i++)
        if (!claim_begin_on(&claims[i], devices_find_slot(need->devices[i]), need->bytes[i])) {
            drop(claims, i);
            return false;
        }
    return true;
}

static CUresult keep(uint64_t key)
{
    (void)key; /* the graph is destroyed once, for all its devices */
    return CUDA_SUCCESS;
}

static CUresult end(const struct claim *claims, unsigned count, CUresult result, CUgraphExec *made)
{
    uint64_t key = (uint64_t)(uintptr_t)WRITTEN(result, made);
    CUresult kept = result;
    for (unsigned i = 0; i < count; i++)
        if (claim_end(&claims[i], result, BLOCK_GRAPH, key, keep) != result)
            kept = CUDA_ERROR_OUT_OF_MEMORY;
    if (kept != result)
        cuGraphExecDestroy((CUgraphExec)(uintptr_t)key);
    return kept;
}

#define INSTANTIATE(name, ...)                                                              \
    struct need need = {.count = 0};                                                        \
    struct claim claims[VGPU_DEVICES];                                                      \
    add_up(&need, graph, 0);                                                                \
    if (!begin(claims, &need))                                                              \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                    \
    return end(claims, need.count, DRIVER_CALL(name, made, graph, __VA_ARGS__), made)

CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t bytes)
{
    INSTANTIATE(cuGraphInstantiate, error, log, bytes);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t bytes)
{
    INSTANTIATE(cuGraphInstantiate_v2, error, log, bytes);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    INSTANTIATE(cuGraphInstantiateWithFlags, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted)
{
    INSTANTIATE(cuGraphInstantiateWithParams, wanted);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted)
{
    INSTANTIATE(cuGraphInstantiateWithParams_ptsz, wanted);
}

/* The driver keeps the memory of graphs for other graphs until it is told not to. */
CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    uint64_t key = (uint64_t)(uintptr_t)graph;
    struct block blocks[VGPU_DEVICES];
    unsigned count = 0;
    while (count < VGPU_DEVICES && blocks_take(BLOCK_GRAPH, key, &blocks[count]))
        count++;
    CUresult result = DRIVER_CALL(cuGraphExecDestroy, graph);
    int devices = 0;
    if (count > 0 && result == CUDA_SUCCESS)
        DRIVER_CALL(cuDeviceGetCount, &devices);
    for (CUdevice device = 0; device < devices; device++)
        DRIVER_CALL(cuDeviceGraphMemTrim, device);
    for (unsigned i = 0; i < count; i++)
        claim_end_free(true, &blocks[i], result);
    return result;
}
