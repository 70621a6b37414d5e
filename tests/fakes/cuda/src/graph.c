/* Graphs: nodes in the order they were added, and memory that is there from the first launch until it is trimmed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define NODES_MOST 64

enum node_type { KERNEL = 0, CHILD = 4, EMPTY = 5, ALLOCATION = 10 };

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
struct graph {
    struct node *nodes[NODES_MOST];
    size_t count;
};
struct graph_exec {
    uint64_t needs[DEVICES_MOST];
    uint64_t nanoseconds;
    int has_memory;
};

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static uint64_t kept[DEVICES_MOST]; /* of graphs that are gone */
static uint64_t next_address = UINT64_C(0x500000000000);

struct graph *graph_create(void)
{
    return calloc(1, sizeof(struct graph));
}

static struct node *add(struct graph *graph, int type)
{
    struct node *node = graph->count < NODES_MOST ? calloc(1, sizeof *node) : NULL;
    if (node) {
        node->type = type;
        graph->nodes[graph->count++] = node;
    }
    return node;
}

result graph_add_allocation(struct graph *graph, device device, uint64_t bytes, address *at)
{
    struct node *node = add(graph, ALLOCATION);
    REQUIRE(node, OUT_OF_MEMORY);
    node->allocation.pool.location = (struct location){ON_DEVICE, device};
    node->allocation.bytes = bytes;
    node->allocation.at = __atomic_fetch_add(&next_address, bytes, __ATOMIC_RELAXED);
    *at = node->allocation.at;
    return SUCCESS;
}

result graph_add_kernel(struct graph *graph, const void *function)
{
    struct node *node = add(graph, KERNEL);
    REQUIRE(node, OUT_OF_MEMORY);
    node->nanoseconds = launch_duration(function);
    return SUCCESS;
}

EXPORT result cuGraphCreate(struct graph **graph, unsigned flags)
{
    BEGIN;
    (void)flags;
    REQUIRE(graph, INVALID_VALUE);
    *graph = graph_create();
    return *graph ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT result cuGraphAddMemAllocNode(struct node **node, struct graph *graph, struct node **after, size_t count,
                                     struct allocation *wanted)
{
    BEGIN;
    (void)after, (void)count;
    REQUIRE(node && graph && wanted && wanted->bytes > 0, INVALID_VALUE);
    *node = add(graph, ALLOCATION);
    REQUIRE(*node, OUT_OF_MEMORY);
    (*node)->allocation = *wanted;
    return SUCCESS;
}

EXPORT result cuGraphAddChildGraphNode(struct node **node, struct graph *graph, struct node **after, size_t count,
                                       struct graph *child)
{
    BEGIN;
    (void)after, (void)count;
    REQUIRE(node && graph && child, INVALID_VALUE);
    *node = add(graph, CHILD);
    REQUIRE(*node, OUT_OF_MEMORY);
    (*node)->child = child;
    return SUCCESS;
}

EXPORT result cuGraphAddEmptyNode(struct node **node, struct graph *graph, struct node **after, size_t count)
{
    BEGIN;
    (void)after, (void)count;
    REQUIRE(node && graph, INVALID_VALUE);
    *node = add(graph, EMPTY);
    return *node ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT result cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count)
{
    BEGIN;
    REQUIRE(graph && count, INVALID_VALUE);
    if (nodes)
        memcpy(nodes, graph->nodes, (*count < graph->count ? *count : graph->count) * sizeof *nodes);
    *count = graph->count;
    return SUCCESS;
}

EXPORT result cuGraphNodeGetType(struct node *node, int *type)
{
    BEGIN;
    REQUIRE(node && type, INVALID_VALUE);
    *type = node->type;
    return SUCCESS;
}

EXPORT result cuGraphMemAllocNodeGetParams(struct node *node, struct allocation *wanted)
{
    BEGIN;
    REQUIRE(node && wanted && node->type == ALLOCATION, INVALID_VALUE);
    *wanted = node->allocation;
    return SUCCESS;
}

EXPORT result cuGraphChildGraphNodeGetGraph(struct node *node, struct graph **child)
{
    BEGIN;
    REQUIRE(node && child && node->type == CHILD, INVALID_VALUE);
    *child = node->child;
    return SUCCESS;
}

static uint64_t add_up(const struct graph *graph, uint64_t needs[DEVICES_MOST])
{
    uint64_t nanoseconds = 0;
    for (size_t i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];
        if (node->type == ALLOCATION)
            needs[node->allocation.pool.location.id] += node->allocation.bytes;
        nanoseconds += node->type == CHILD ? add_up(node->child, needs) : node->nanoseconds;
    }
    return nanoseconds;
}

static result instantiate(struct graph_exec **made, const struct graph *graph)
{
    REQUIRE(made && graph, INVALID_VALUE);
    *made = calloc(1, sizeof **made);
    REQUIRE(*made, OUT_OF_MEMORY);
    (*made)->nanoseconds = add_up(graph, (*made)->needs);
    return SUCCESS;
}

EXPORT result cuGraphInstantiate(struct graph_exec **made, struct graph *graph, void *error, char *log, size_t bytes)
{
    BEGIN;
    (void)error, (void)log, (void)bytes;
    return instantiate(made, graph);
}

EXPORT result cuGraphInstantiate_v2(struct graph_exec **made, struct graph *graph, void *error, char *log, size_t bytes)
{
    BEGIN;
    (void)error, (void)log, (void)bytes;
    return instantiate(made, graph);
}

EXPORT result cuGraphInstantiateWithFlags(struct graph_exec **made, struct graph *graph, unsigned long long flags)
{
    BEGIN;
    (void)flags;
    return instantiate(made, graph);
}

EXPORT result cuGraphInstantiateWithParams(struct graph_exec **made, struct graph *graph, void *wanted)
{
    BEGIN;
    (void)wanted;
    return instantiate(made, graph);
}

EXPORT result cuGraphInstantiateWithParams_ptsz(struct graph_exec **made, struct graph *graph, void *wanted)
{
    BEGIN;
    (void)wanted;
    return instantiate(made, graph);
}

static result launch(struct graph_exec *exec)
{
    REQUIRE(exec, INVALID_VALUE);
    pthread_mutex_lock(&changing);
    result verdict = SUCCESS;
    for (device which = 0; !exec->has_memory && verdict == SUCCESS && which < DEVICES_MOST; which++) {
        uint64_t from_kept = kept[which] < exec->needs[which] ? kept[which] : exec->needs[which];
        if (exec->needs[which] > from_kept)
            verdict = account_charge(which, exec->needs[which] - from_kept);
        kept[which] -= verdict == SUCCESS ? from_kept : 0;
    }
    exec->has_memory = exec->has_memory || verdict == SUCCESS;
    if (verdict == SUCCESS)
        launch_add(exec->nanoseconds);
    pthread_mutex_unlock(&changing);
    return verdict;
}

EXPORT result cuGraphLaunch(struct graph_exec *exec, void *stream)
{
    BEGIN;
    (void)stream;
    return launch(exec);
}

EXPORT result cuGraphLaunch_ptsz(struct graph_exec *exec, void *stream)
{
    BEGIN;
    (void)stream;
    return launch(exec);
}

EXPORT result cuGraphExecDestroy(struct graph_exec *exec)
{
    BEGIN;
    REQUIRE(exec, INVALID_VALUE);
    pthread_mutex_lock(&changing);
    for (device which = 0; exec->has_memory && which < DEVICES_MOST; which++)
        kept[which] += exec->needs[which];
    pthread_mutex_unlock(&changing);
    free(exec);
    return SUCCESS;
}

EXPORT result cuDeviceGraphMemTrim(device which)
{
    BEGIN;
    REQUIRE_DEVICE(which);
    pthread_mutex_lock(&changing);
    account_credit(which, kept[which]);
    kept[which] = 0;
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}
