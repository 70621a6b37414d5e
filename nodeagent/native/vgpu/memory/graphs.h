/*
 * Graphs whose nodes allocate, each function with the arguments and answers of the driver's function of that name. What counts
 * is what the driver has reserved for all graphs of a device together: it reserves when a graph is launched or uploaded, uses
 * that again for other graphs, and gives it back when it is told to.
 */
#ifndef VGPU_GRAPHS_H
#define VGPU_GRAPHS_H

#include <stdbool.h>

#include "front/driver.h"
#include "front/hooks.h"

HOOK CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t bytes);
HOOK CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t bytes);
HOOK CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags);
HOOK CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted);
HOOK CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph graph,
                                                CUDA_GRAPH_INSTANTIATE_PARAMS *wanted);
HOOK CUresult cuGraphUpload(CUgraphExec graph, CUstream stream);
HOOK CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream);
HOOK CUresult cuGraphExecDestroy(CUgraphExec graph);
HOOK CUresult cuDeviceGraphMemTrim(CUdevice device);

/* Launch within the limit. */
CUresult graphs_launch(CUgraphExec graph, CUstream stream, bool per_thread);

/* Let the driver give back what it keeps for graphs of a slot. True where that made room. */
bool graphs_shrink(unsigned slot);

/* After contexts have ended, and what the driver had reserved in them. */
void graphs_settle(void);

/* In the child of a fork. */
void graphs_after_fork(void);

#endif
