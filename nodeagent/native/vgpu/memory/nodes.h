/* The nodes of a graph that allocate and free, with those of graphs within it. */
#ifndef VGPU_NODES_H
#define VGPU_NODES_H

#include <stdbool.h>

#include "front/driver.h"

struct nodes_allocation {
    CUdevice device;
    CUdeviceptr at;
    uint64_t bytes;
};

struct nodes {
    struct nodes_allocation *allocations; /* by address, which no two devices share, once they are read */
    CUdeviceptr *frees;
    size_t count, frees_count, room, frees_room;
};

/* False where there was no memory to read them; drop them in any case. */
bool nodes_read(struct nodes *nodes, CUgraph graph);

void nodes_drop(struct nodes *nodes);

/* Bytes of addresses on a device: nodes whose lifetimes do not overlap were given the same ones. */
uint64_t nodes_measure(const struct nodes *nodes, CUdevice device);

/* Whether every allocation is freed by a node. */
bool nodes_are_freed(const struct nodes *nodes);

#endif
