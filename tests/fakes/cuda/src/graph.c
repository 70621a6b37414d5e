/* Graphs: nodes in the order they were added, each after all before it. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define NODES_MOST 64

enum node_type { KERNEL = 0, CHILD = 4, EMPTY = 5, ALLOCATION = 10, FREE = 11 };
enum { AUTO_FREE = 1, UPLOAD = 2 };

struct allocation {
    struct pool_properties pool;
    const void *access;
    size_t access_count, bytes;
    address at;
};
struct node {
    int type;
    uint64_t nanoseconds;
    struct allocation allocation;
    struct graph *child;
};
/* Addresses that one allocation after another has. */
struct range {
    device device;
    address at;
    uint64_t bytes;
    int is_taken;
};
struct graph {
    struct node *nodes[NODES_MOST];
    size_t count;
    struct range ranges[NODES_MOST];
    size_t ranges_count;
};
struct graph_exec {
    struct graph_memory *memory;
    uint64_t nanoseconds;
};
/* CUDA's. */
struct instantiation {
    unsigned long long flags;
    void *upload_stream, *error;
    int result;
};

static uint64_t next_address = UINT64_C(0x500000000000);

struct graph *graph_create(void) {
    return calloc(1, sizeof(struct graph));
}

static struct node *add(struct graph *graph, int type) {
    struct node *node = graph->count < NODES_MOST ? calloc(1, sizeof *node) : NULL;
    if (node) {
        node->type = type;
        graph->nodes[graph->count++] = node;
    }
    return node;
}

static address choose_address(struct graph *graph, device device, uint64_t bytes) {
    size_t i = 0;
    while (i < graph->ranges_count &&
           (graph->ranges[i].is_taken || graph->ranges[i].device != device || graph->ranges[i].bytes < bytes))
        i++;
    if (i == graph->ranges_count) {
        address at = __atomic_fetch_add(&next_address, bytes, __ATOMIC_RELAXED);
        graph->ranges[graph->ranges_count++] = (struct range){device, at, bytes, 0};
    }
    graph->ranges[i].is_taken = 1;
    return graph->ranges[i].at;
}

static result add_allocation(struct graph *graph, struct allocation *wanted, struct node **made) {
    struct node *node = add(graph, ALLOCATION);
    REQUIRE(node, OUT_OF_MEMORY);
    wanted->at = choose_address(graph, wanted->pool.location.id, wanted->bytes);
    node->allocation = *wanted;
    *made = node;
    return SUCCESS;
}

result graph_add_allocation(struct graph *graph, device device, uint64_t bytes, address *at) {
    struct node *node;
    struct allocation wanted = {.pool.location = {ON_DEVICE, device}, .bytes = bytes};
    result verdict = add_allocation(graph, &wanted, &node);
    *at = wanted.at;
    return verdict;
}

/* Also one of another graph, or of none. */
static result add_free(struct graph *graph, address at, struct node **made) {
    struct node *node = add(graph, FREE);
    REQUIRE(node, OUT_OF_MEMORY);
    node->allocation.at = at;
    for (size_t i = 0; i < graph->ranges_count; i++)
        if (graph->ranges[i].at == at) graph->ranges[i].is_taken = 0;
    *made = node;
    return SUCCESS;
}

result graph_add_free(struct graph *graph, address at) {
    struct node *node;
    return add_free(graph, at, &node);
}

result graph_add_kernel(struct graph *graph, const void *function) {
    struct node *node = add(graph, KERNEL);
    REQUIRE(node, OUT_OF_MEMORY);
    node->nanoseconds = launch_duration(function);
    return SUCCESS;
}

EXPORT result cuGraphCreate(struct graph **graph, unsigned flags) {
    BEGIN;
    (void)flags;
    REQUIRE(graph, INVALID_VALUE);
    *graph = graph_create();
    return *graph ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT result cuGraphAddMemAllocNode(struct node **node, struct graph *graph, struct node **after, size_t count,
                                     struct allocation *wanted) {
    BEGIN;
    (void)after, (void)count;
    REQUIRE(node && graph && wanted && wanted->bytes > 0, INVALID_VALUE);
    return add_allocation(graph, wanted, node);
}

EXPORT result cuGraphAddMemFreeNode(struct node **node, struct graph *graph, struct node **after, size_t count,
                                    address at) {
    BEGIN;
    (void)after, (void)count;
    REQUIRE(node && graph && at, INVALID_VALUE);
    return add_free(graph, at, node);
}

EXPORT result cuGraphAddChildGraphNode(struct node **node, struct graph *graph, struct node **after, size_t count,
                                       struct graph *child) {
    BEGIN;
    (void)after, (void)count;
    REQUIRE(node && graph && child, INVALID_VALUE);
    *node = add(graph, CHILD);
    REQUIRE(*node, OUT_OF_MEMORY);
    (*node)->child = child;
    return SUCCESS;
}

EXPORT result cuGraphAddEmptyNode(struct node **node, struct graph *graph, struct node **after, size_t count) {
    BEGIN;
    (void)after, (void)count;
    REQUIRE(node && graph, INVALID_VALUE);
    *node = add(graph, EMPTY);
    return *node ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT result cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count) {
    BEGIN;
    REQUIRE(graph && count, INVALID_VALUE);
    if (nodes) memcpy(nodes, graph->nodes, (*count < graph->count ? *count : graph->count) * sizeof *nodes);
    *count = graph->count;
    return SUCCESS;
}

EXPORT result cuGraphNodeGetType(struct node *node, int *type) {
    BEGIN;
    REQUIRE(node && type, INVALID_VALUE);
    *type = node->type;
    return SUCCESS;
}

EXPORT result cuGraphMemAllocNodeGetParams(struct node *node, struct allocation *wanted) {
    BEGIN;
    REQUIRE(node && wanted && node->type == ALLOCATION, INVALID_VALUE);
    *wanted = node->allocation;
    return SUCCESS;
}

EXPORT result cuGraphMemFreeNodeGetParams(struct node *node, address *at) {
    BEGIN;
    REQUIRE(node && at && node->type == FREE, INVALID_VALUE);
    *at = node->allocation.at;
    return SUCCESS;
}

EXPORT result cuGraphChildGraphNodeGetGraph(struct node *node, struct graph **child) {
    BEGIN;
    REQUIRE(node && child && node->type == CHILD, INVALID_VALUE);
    *child = node->child;
    return SUCCESS;
}

static uint64_t add_up(const struct graph *graph, struct graph_memory *memory) {
    uint64_t nanoseconds = 0;
    for (size_t i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];
        nanoseconds += node->type == CHILD ? add_up(node->child, memory) : node->nanoseconds;
    }
    for (size_t i = 0; i < graph->ranges_count; i++) {
        const struct range *range = &graph->ranges[i];
        graph_memory_add(memory, range->device, range->bytes, range->is_taken ? range->at : 0);
    }
    return nanoseconds;
}

static result instantiate(struct graph_exec **made, const struct graph *graph, unsigned long long flags) {
    REQUIRE(made && graph, INVALID_VALUE);
    *made = calloc(1, sizeof **made);
    REQUIRE(*made, OUT_OF_MEMORY);
    (*made)->memory = graph_memory_create(flags & AUTO_FREE);
    (*made)->nanoseconds = add_up(graph, (*made)->memory);
    return SUCCESS;
}

static result instantiate_with(struct graph_exec **made, const struct graph *graph,
                               const struct instantiation *wanted) {
    result verdict = instantiate(made, graph, wanted ? wanted->flags : 0);
    if (verdict == SUCCESS && wanted && wanted->flags & UPLOAD)
        verdict = graph_memory_map((*made)->memory, wanted->upload_stream);
    return verdict;
}

EXPORT result cuGraphInstantiate(struct graph_exec **made, struct graph *graph, void *error, char *log, size_t bytes) {
    BEGIN;
    (void)error, (void)log, (void)bytes;
    return instantiate(made, graph, 0);
}

EXPORT result cuGraphInstantiate_v2(struct graph_exec **made, struct graph *graph, void *error, char *log,
                                    size_t bytes) {
    BEGIN;
    (void)error, (void)log, (void)bytes;
    return instantiate(made, graph, 0);
}

EXPORT result cuGraphInstantiateWithFlags(struct graph_exec **made, struct graph *graph, unsigned long long flags) {
    BEGIN;
    return instantiate(made, graph, flags);
}

EXPORT result cuGraphInstantiateWithParams(struct graph_exec **made, struct graph *graph,
                                           struct instantiation *wanted) {
    BEGIN;
    return instantiate_with(made, graph, wanted);
}

EXPORT result cuGraphInstantiateWithParams_ptsz(struct graph_exec **made, struct graph *graph,
                                                struct instantiation *wanted) {
    BEGIN;
    return instantiate_with(made, graph, wanted);
}

static result launch(struct graph_exec *exec, void *stream) {
    REQUIRE(exec, INVALID_VALUE);
    result verdict = graph_memory_launch(exec->memory, stream);
    if (verdict == SUCCESS) {
        launch_add(exec->nanoseconds);
        graph_memory_end_launch(stream);
    }
    return verdict;
}

EXPORT result cuGraphLaunch(struct graph_exec *exec, void *stream) {
    BEGIN;
    return launch(exec, stream);
}

EXPORT result cuGraphLaunch_ptsz(struct graph_exec *exec, void *stream) {
    BEGIN;
    return launch(exec, stream);
}

EXPORT result cuGraphUpload(struct graph_exec *exec, void *stream) {
    BEGIN;
    REQUIRE(exec, INVALID_VALUE);
    return graph_memory_map(exec->memory, stream);
}

EXPORT result cuGraphUpload_ptsz(struct graph_exec *exec, void *stream) {
    BEGIN;
    REQUIRE(exec, INVALID_VALUE);
    return graph_memory_map(exec->memory, stream);
}

/* What it has left allocated stays so. */
EXPORT result cuGraphExecDestroy(struct graph_exec *exec) {
    BEGIN;
    REQUIRE(exec, INVALID_VALUE);
    free(exec);
    return SUCCESS;
}
