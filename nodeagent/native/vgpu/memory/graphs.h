/*
 * Graphs whose nodes allocate, each with the arguments and answers of the driver's function of that name. What their nodes
 * ask for together is charged from the moment that such a graph can run until it is destroyed.
 */
#ifndef VGPU_GRAPHS_H
#define VGPU_GRAPHS_H

#include "front/driver.h"
#include "front/hooks.h"

HOOK CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t bytes);
HOOK CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t bytes);
HOOK CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags);
HOOK CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted);
HOOK CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted);
HOOK CUresult cuGraphExecDestroy(CUgraphExec graph);

#endif
