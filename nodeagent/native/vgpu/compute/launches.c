/* See launches.h. */
#include "compute/launches.h"

#include "compute/bucket.h"
#include "ledger/devices.h"
#include "compute/durations.h"
#include "ledger/files.h"
#include "memory/graphs.h"

/* Pay and wait, with the stream's context the current one; true where the launch is to be looked at. */
static bool begin_there(struct sample *sample, const void *launched, CUstream stream, bool per_thread) {
    unsigned slot = devices_find_current_slot();
    /* What is captured costs when its graph is launched. */
    if (!bucket_is_limited(slot) || devices_is_captured(stream, per_thread)) return false;
    durations_look();
    struct duration *duration = launched ? durations_find(launched, slot) : NULL;
    if (!duration) return false;
    uint64_t cost = durations_average(duration);
    if (__builtin_expect(cost == 0, 0)) {
        durations_wait(duration);
        cost = durations_average(duration);
    }
    bucket_pay(slot, cost);
    bool looked_at = durations_begin(sample, duration, stream, per_thread);
    sample->slot = slot;
    sample->paid_ns = cost;
    return looked_at;
}

/* A graph runs where its stream is, whichever context the thread has meanwhile, and so does a kernel of no context. */
static bool begin_limited(struct sample *sample, const void *launched, CUstream stream, bool per_thread) {
    bool entered, looked_at = false;
    if (devices_enter(stream, &entered)) {
        looked_at = begin_there(sample, launched, stream, per_thread);
        devices_leave(entered);
    }
    return looked_at;
}

static inline bool begin(struct sample *sample, const void *launched, CUstream stream, bool per_thread) {
    if (__builtin_expect(files_look() != VGPU_LIMITING || !files_limits_cores(), 1)) return false;
    return begin_limited(sample, launched, stream, per_thread);
}

#define LAUNCH(launched, stream, per_thread, name, ...)                     \
    LAUNCH_BY(launched, stream, per_thread, DRIVER_CALL(name, __VA_ARGS__))
#define LAUNCH_BY(launched, stream, per_thread, call)                                  \
    struct sample sample;                                                              \
    bool looked_at = begin(&sample, launched, stream, per_thread);                     \
    CUresult result = call;                                                            \
    if (looked_at) durations_end(&sample, stream, per_thread, result == CUDA_SUCCESS); \
    return result

#define SHAPE grid_x, grid_y, grid_z, block_x, block_y, block_z

CUresult cuLaunchKernel(CUfunction function, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **arguments,
                        void **extra) {
    LAUNCH(function, stream, false, cuLaunchKernel, function, SHAPE, shared, stream, arguments, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **arguments,
                             void **extra) {
    LAUNCH(function, stream, true, cuLaunchKernel_ptsz, function, SHAPE, shared, stream, arguments, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *shape, CUfunction function, void **arguments, void **extra) {
    CUstream stream = shape ? shape->hStream : NULL;
    LAUNCH(function, stream, false, cuLaunchKernelEx, shape, function, arguments, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *shape, CUfunction function, void **arguments, void **extra) {
    CUstream stream = shape ? shape->hStream : NULL;
    LAUNCH(function, stream, true, cuLaunchKernelEx_ptsz, shape, function, arguments, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, LAUNCH_SHAPE, unsigned shared, CUstream stream,
                                   void **arguments) {
    LAUNCH(function, stream, false, cuLaunchCooperativeKernel, function, SHAPE, shared, stream, arguments);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, LAUNCH_SHAPE, unsigned shared, CUstream stream,
                                        void **arguments) {
    LAUNCH(function, stream, true, cuLaunchCooperativeKernel_ptsz, function, SHAPE, shared, stream, arguments);
}

/* On several devices at once, for as long on each: paid for by the current one. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned count, unsigned flags) {
    bool is_there = launches && count > 0;
    LAUNCH(is_there ? launches->function : NULL, is_there ? launches->hStream : NULL, false,
           cuLaunchCooperativeKernelMultiDevice, launches, count, flags);
}

CUresult cuLaunch(CUfunction function) {
    LAUNCH(function, NULL, false, cuLaunch, function);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    LAUNCH(function, NULL, false, cuLaunchGrid, function, width, height);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    LAUNCH(function, stream, false, cuLaunchGridAsync, function, width, height, stream);
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    LAUNCH_BY(graph, stream, false, graphs_launch(graph, stream, false));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
    LAUNCH_BY(graph, stream, true, graphs_launch(graph, stream, true));
}
