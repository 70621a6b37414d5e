/* See nodes.h. */
#include "memory/nodes.h"

#include <stdlib.h>

#define DEPTH_MOST 16u /* of graphs within graphs */

/* One more place in an array that may move. */
static void *grow(void *array, size_t size, size_t count, size_t *room) {
    if (count < *room) return array;
    size_t wanted = *room ? *room * 2 : 16;
    void *grown = realloc(array, wanted * size);
    if (grown) *room = wanted;
    return grown;
}

static bool add_allocation(struct nodes *nodes, struct nodes_allocation allocation) {
    struct nodes_allocation *grown = grow(nodes->allocations, sizeof *nodes->allocations, nodes->count, &nodes->room);
    if (!grown) return false;
    nodes->allocations = grown;
    nodes->allocations[nodes->count++] = allocation;
    return true;
}

static bool add_free(struct nodes *nodes, CUdeviceptr at) {
    CUdeviceptr *grown = grow(nodes->frees, sizeof *nodes->frees, nodes->frees_count, &nodes->frees_room);
    if (!grown) return false;
    nodes->frees = grown;
    nodes->frees[nodes->frees_count++] = at;
    return true;
}

static bool add_graph(struct nodes *nodes, CUgraph graph, unsigned depth);

static bool add_node(struct nodes *nodes, CUgraphNode node, unsigned depth) {
    CUgraphNodeType type;
    CUgraph inner;
    CUdeviceptr at;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    if (DRIVER_CALL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) return true;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        DRIVER_CALL(cuGraphMemAllocNodeGetParams, node, &wanted) == CUDA_SUCCESS &&
        wanted.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return add_allocation(nodes,
                              (struct nodes_allocation){wanted.poolProps.location.id, wanted.dptr, wanted.bytesize});
    if (type == CU_GRAPH_NODE_TYPE_MEM_FREE && DRIVER_CALL(cuGraphMemFreeNodeGetParams, node, &at) == CUDA_SUCCESS)
        return add_free(nodes, at);
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MOST &&
        DRIVER_CALL(cuGraphChildGraphNodeGetGraph, node, &inner) == CUDA_SUCCESS)
        return add_graph(nodes, inner, depth + 1);
    return true;
}

static bool add_graph(struct nodes *nodes, CUgraph graph, unsigned depth) {
    size_t count = 0;
    if (DRIVER_CALL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS || count == 0) return true;
    CUgraphNode *each = calloc(count, sizeof *each);
    bool fits = each != NULL;
    if (each && DRIVER_CALL(cuGraphGetNodes, graph, each, &count) == CUDA_SUCCESS)
        for (size_t i = 0; fits && i < count; i++) fits = add_node(nodes, each[i], depth);
    free(each);
    return fits;
}

static int compare_numbers(CUdeviceptr a, CUdeviceptr b) {
    return (a > b) - (a < b);
}

static int compare_frees(const void *a, const void *b) {
    return compare_numbers(*(const CUdeviceptr *)a, *(const CUdeviceptr *)b);
}

static int compare_allocations(const void *a, const void *b) {
    const struct nodes_allocation *one = a, *other = b;
    return compare_numbers(one->at, other->at);
}

bool nodes_read(struct nodes *nodes, CUgraph graph) {
    *nodes = (struct nodes){NULL, NULL, 0, 0, 0, 0};
    if (!add_graph(nodes, graph, 0)) return false;
    if (nodes->count > 0) qsort(nodes->allocations, nodes->count, sizeof *nodes->allocations, compare_allocations);
    if (nodes->frees_count > 0) qsort(nodes->frees, nodes->frees_count, sizeof *nodes->frees, compare_frees);
    return true;
}

void nodes_drop(struct nodes *nodes) {
    free(nodes->allocations);
    free(nodes->frees);
}

uint64_t nodes_measure(const struct nodes *nodes, CUdevice device) {
    uint64_t bytes = 0, end = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        const struct nodes_allocation *each = &nodes->allocations[i];
        uint64_t past;
        if (each->device != device) continue;
        if (__builtin_add_overflow(each->at, each->bytes, &past)) return UINT64_MAX;
        if (past > end) bytes += past - (each->at > end ? each->at : end);
        end = past > end ? past : end;
    }
    return bytes;
}

bool nodes_are_freed(const struct nodes *nodes) {
    size_t freed = 0;
    for (size_t i = 0, k = 0; i < nodes->count; i++) {
        while (k < nodes->frees_count && nodes->frees[k] < nodes->allocations[i].at) k++;
        if (k < nodes->frees_count && nodes->frees[k] == nodes->allocations[i].at) {
            freed++;
            k++;
        }
    }
    return freed == nodes->count;
}
