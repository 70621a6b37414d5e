/* See graphs.h. */
#include "memory/graphs.h"

#include <stdlib.h>
#include <string.h>

#include "ledger/devices.h"
#include "ledger/files.h"
#include "ledger/ledger.h"
#include "ledger/lock.h"
#include "memory/blocks.h"
#include "memory/nodes.h"
#include "memory/pools.h"

#define STREAMS 32u /* of which it is remembered what was reserved for them */
#define NEVER UINT64_MAX

/* What an instantiated graph takes of one device at most, and after how many trims it was launched last. */
struct part {
    CUdevice device;
    unsigned slot;
    uint64_t bytes, launched_in;
};

struct needs {
    struct part parts[VGPU_DEVICES];
    unsigned count;
    bool frees_all;       /* that it allocates, by itself */
    bool frees_on_launch; /* what its launch before has left */
};

/* Graphs that are launched in one stream use the same memory one after another. */
struct stream_part {
    CUstream stream;
    uint64_t bytes;
};

/* What the driver has reserved on the device of a slot. */
struct reserved {
    CUdevice device;
    uint64_t charged;
    uint64_t trims;
    struct stream_part streams[STREAMS];
    unsigned next;
};

/* Held while the driver may change what it has reserved, so that it is known what changed it. */
static struct lock changing;
static struct reserved slots[VGPU_DEVICES];

static void forget_streams(struct reserved *reserved) {
    memset(reserved->streams, 0, sizeof reserved->streams);
    reserved->trims++;
}

/*
 * Charged is what the driver says, `held` being reserved for it. What it has taken beyond and does not fit stays uncounted
 * until it does: a graph that runs cannot be taken back.
 */
static void settle(struct reserved *reserved, unsigned slot, uint64_t held) {
    uint64_t had = reserved->charged + held, has = had;
    DRIVER_CALL(cuDeviceGetGraphMemAttribute, reserved->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &has);
    if (has > had && ledger_reserve(slot, has - had) != LEDGER_GRANTED) has = had;
    if (has < had) ledger_release(slot, had - has);
    reserved->charged = has;
}

static bool trim(struct reserved *reserved, unsigned slot) {
    uint64_t before = reserved->charged;
    if (before == 0) return false;
    DRIVER_CALL(cuDeviceGraphMemTrim, reserved->device);
    forget_streams(reserved);
    settle(reserved, slot, 0);
    return reserved->charged < before;
}

bool graphs_shrink(unsigned slot) {
    if (slot >= VGPU_DEVICES) return false;
    lock_take(&changing);
    bool freed = trim(&slots[slot], slot);
    lock_give(&changing);
    return freed;
}

void graphs_settle(void) {
    lock_take(&changing);
    for (unsigned slot = 0; slot < VGPU_DEVICES; slot++)
        if (slots[slot].charged > 0) settle(&slots[slot], slot, 0);
    lock_give(&changing);
}

/* Its place among those remembered; the three streams that each context has are of several, and in none. */
static struct stream_part *find_stream(struct reserved *reserved, CUstream stream) {
    unsigned i = 0;
    while (i < STREAMS && reserved->streams[i].stream != stream) i++;
    return (uintptr_t)stream > 2 && i < STREAMS ? &reserved->streams[i] : NULL;
}

/* What of it the driver has already, where a launch in this stream may use it. */
static uint64_t find_usable(struct reserved *reserved, const struct needs *needs, const struct part *part,
                            CUstream stream) {
    const struct stream_part *known = find_stream(reserved, stream);
    uint64_t usable = 0;
    if (needs->frees_all) usable = known ? known->bytes : 0;
    else if (needs->frees_on_launch && part->launched_in == reserved->trims) usable = part->bytes;
    return usable < part->bytes ? usable : part->bytes;
}

/* What it leaves allocated is of no use to others of the stream, and may have been theirs. */
static void remember(struct reserved *reserved, const struct needs *needs, struct part *part, CUstream stream) {
    struct stream_part *known = find_stream(reserved, stream);
    part->launched_in = reserved->trims;
    if (!needs->frees_all) {
        if (known) known->bytes = 0;
        return;
    }
    if (!known && (uintptr_t)stream > 2) {
        known = &reserved->streams[reserved->next++ % STREAMS];
        *known = (struct stream_part){stream, 0};
    }
    if (known && known->bytes < part->bytes) known->bytes = part->bytes;
}

/* With the lock. */
static bool try_reserve(const struct needs *needs, const struct part *part, CUstream stream, uint64_t *held) {
    *held = part->bytes - find_usable(&slots[part->slot], needs, part, stream);
    enum verdict verdict = *held ? ledger_reserve(part->slot, *held) : LEDGER_GRANTED;
    if (verdict == LEDGER_UNCOUNTED) *held = 0;
    return verdict != LEDGER_DENIED;
}

/* What nobody uses is given back where it is in the way. */
static bool reserve(const struct needs *needs, const struct part *part, CUstream stream, uint64_t *held) {
    if (try_reserve(needs, part, stream, held)) return true;
    bool freed = trim(&slots[part->slot], part->slot);
    freed = pools_shrink(part->slot) || freed;
    return freed && try_reserve(needs, part, stream, held);
}

static void drop(const struct needs *needs, const uint64_t held[VGPU_DEVICES], unsigned count) {
    for (unsigned i = 0; i < count; i++) ledger_release(needs->parts[i].slot, held[i]);
}

/* True where the driver may be asked; on every device, or none. */
static bool begin(const struct needs *needs, CUstream stream, uint64_t held[VGPU_DEVICES]) {
    for (unsigned i = 0; i < needs->count; i++) {
        slots[needs->parts[i].slot].device = needs->parts[i].device;
        if (!reserve(needs, &needs->parts[i], stream, &held[i])) {
            drop(needs, held, i);
            return false;
        }
    }
    return true;
}

static void end(struct needs *needs, CUstream stream, const uint64_t held[VGPU_DEVICES], CUresult result) {
    for (unsigned i = 0; i < needs->count; i++) {
        struct part *part = &needs->parts[i];
        settle(&slots[part->slot], part->slot, held[i]);
        if (result == CUDA_SUCCESS) remember(&slots[part->slot], needs, part, stream);
    }
}

/* What has the driver reserve: a launch, or an upload before one. */
struct way {
    CUresult (*run)(CUgraphExec graph, CUstream stream);
    bool per_thread;
};

static bool try_once(struct needs *needs, CUgraphExec graph, CUstream stream, const struct way *way, CUresult *result) {
    uint64_t held[VGPU_DEVICES];
    lock_take(&changing);
    bool fits = begin(needs, stream, held);
    if (fits) {
        *result = way->run(graph, stream);
        end(needs, stream, held, *result);
    }
    lock_give(&changing);
    return fits;
}

static CUresult run(CUgraphExec graph, CUstream stream, const struct way *way) {
    struct block block;
    CUresult result;
    /* What is captured reserves nothing. */
    if (!blocks_find(BLOCK_GRAPH, (uint64_t)(uintptr_t)graph, &block) || devices_is_captured(stream, way->per_thread))
        return way->run(graph, stream);
    struct needs *needs = (struct needs *)block.owner;
    if (try_once(needs, graph, stream, way, &result)) return result;
    /* What graphs that run have, the driver cannot give back. */
    bool fits = pools_wait(stream, way->per_thread) && try_once(needs, graph, stream, way, &result);
    return fits ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult launch(CUgraphExec graph, CUstream stream) {
    return DRIVER_CALL(cuGraphLaunch, graph, stream);
}

static CUresult launch_per_thread(CUgraphExec graph, CUstream stream) {
    return DRIVER_CALL(cuGraphLaunch_ptsz, graph, stream);
}

static CUresult upload(CUgraphExec graph, CUstream stream) {
    return DRIVER_CALL(cuGraphUpload, graph, stream);
}

static CUresult upload_per_thread(CUgraphExec graph, CUstream stream) {
    return DRIVER_CALL(cuGraphUpload_ptsz, graph, stream);
}

CUresult graphs_launch(CUgraphExec graph, CUstream stream, bool per_thread) {
    return run(graph, stream, &(struct way){per_thread ? launch_per_thread : launch, per_thread});
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
    return run(graph, stream, &(struct way){upload, false});
}

CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream) {
    return run(graph, stream, &(struct way){upload_per_thread, true});
}

static void add_part(struct needs *needs, const struct nodes *nodes, CUdevice device) {
    unsigned i = 0, slot = devices_find_slot(device);
    while (i < needs->count && needs->parts[i].slot != slot) i++;
    if (slot != FILES_NO_SLOT && i == needs->count)
        needs->parts[needs->count++] = (struct part){device, slot, nodes_measure(nodes, device), NEVER};
}

/* NULL for a graph that allocates nothing. False where there is no memory to say so. */
static bool find_needs(struct needs **found, CUgraph graph, unsigned long long flags) {
    struct nodes nodes;
    bool is_read = nodes_read(&nodes, graph);
    struct needs *needs = is_read && nodes.count > 0 ? calloc(1, sizeof *needs) : NULL;
    is_read = is_read && (needs || nodes.count == 0);
    if (needs) {
        needs->frees_all = nodes_are_freed(&nodes);
        needs->frees_on_launch = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        for (size_t i = 0; i < nodes.count; i++) add_part(needs, &nodes, nodes.allocations[i].device);
    }
    nodes_drop(&nodes);
    *found = needs;
    return is_read;
}

/* A graph of which no account can be kept is not made. */
static CUresult end_making(struct needs *needs, CUresult result, CUgraphExec *made) {
    uint64_t key = (uint64_t)(uintptr_t)WRITTEN(result, made);
    if (!needs) return result;
    if (key && blocks_add((struct block){key, BLOCK_GRAPH, FILES_NO_SLOT, needs, 0})) return result;
    free(needs);
    if (!key) return result;
    DRIVER_CALL(cuGraphExecDestroy, *made);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define INSTANTIATE(flags, name, ...)                                           \
    struct needs *needs;                                                        \
    if (!find_needs(&needs, graph, flags)) return CUDA_ERROR_OUT_OF_MEMORY;     \
    return end_making(needs, DRIVER_CALL(name, made, graph, __VA_ARGS__), made)

CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t bytes) {
    INSTANTIATE(0, cuGraphInstantiate, error, log, bytes);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t bytes) {
    INSTANTIATE(0, cuGraphInstantiate_v2, error, log, bytes);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
    INSTANTIATE(flags, cuGraphInstantiateWithFlags, flags);
}

/* One that allocates is made first, and uploaded afterwards: then it is known what that may take. */
static CUresult make_with(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted,
                          CUresult (*make)(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted),
                          CUresult (*upload_it)(CUgraphExec graph, CUstream stream)) {
    struct needs *needs;
    cuuint64_t flags = wanted ? wanted->flags : 0;
    if (!find_needs(&needs, graph, flags)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!needs || !(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        return end_making(needs, make(made, graph, wanted), made);
    wanted->flags = flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    CUresult result = end_making(needs, make(made, graph, wanted), made);
    wanted->flags = flags;
    if (result != CUDA_SUCCESS || !made) return result;
    result = upload_it(*made, wanted->hUploadStream);
    if (result != CUDA_SUCCESS) cuGraphExecDestroy(*made);
    return result;
}

static CUresult make(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted) {
    return DRIVER_CALL(cuGraphInstantiateWithParams, made, graph, wanted);
}

static CUresult make_per_thread(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted) {
    return DRIVER_CALL(cuGraphInstantiateWithParams_ptsz, made, graph, wanted);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted) {
    return make_with(made, graph, wanted, make, cuGraphUpload);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted) {
    return make_with(made, graph, wanted, make_per_thread, cuGraphUpload_ptsz);
}

/* The driver keeps the memory of graphs for other graphs until it is told not to. */
CUresult cuGraphExecDestroy(CUgraphExec graph) {
    struct block block;
    bool found = blocks_take(BLOCK_GRAPH, (uint64_t)(uintptr_t)graph, &block);
    CUresult result = DRIVER_CALL(cuGraphExecDestroy, graph);
    if (!found) return result;
    if (result != CUDA_SUCCESS) blocks_add(block);
    else {
        free((void *)block.owner);
        graphs_settle();
    }
    return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    unsigned slot = devices_find_slot(device);
    lock_take(&changing);
    CUresult result = DRIVER_CALL(cuDeviceGraphMemTrim, device);
    if (slot != FILES_NO_SLOT && slots[slot].charged > 0) {
        forget_streams(&slots[slot]);
        settle(&slots[slot], slot, 0);
    }
    lock_give(&changing);
    return result;
}

/* The child has none of its parent's graphs. */
void graphs_after_fork(void) {
    memset(slots, 0, sizeof slots);
    atomic_store(&changing.held, 0);
}
