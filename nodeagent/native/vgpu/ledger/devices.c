/* See devices.h. */
#include "ledger/devices.h"

#include <stdatomic.h>
#include <string.h>

#include "ledger/files.h"

#define DEVICES_MOST 64 /* what the driver counts from 0 */

/* Two words, each written with the same value by whoever asks first: bytes of the UUID, told by `known`. */
static struct {
    _Atomic uint64_t halves[2];
    atomic_bool known;
} devices[DEVICES_MOST];

/* The driver of a MIG device says its own UUID only to the newer question. */
static bool ask(CUuuid *uuid, CUdevice device) {
    return DRIVER_CALL(cuDeviceGetUuid_v2, uuid, device) == CUDA_SUCCESS ||
           DRIVER_CALL(cuDeviceGetUuid, uuid, device) == CUDA_SUCCESS;
}

static bool find_uuid(CUdevice device, uint64_t halves[2]) {
    CUuuid uuid;
    if (device < 0 || device >= DEVICES_MOST) return false;
    if (atomic_load_explicit(&devices[device].known, memory_order_acquire)) {
        for (int i = 0; i < 2; i++) halves[i] = atomic_load_explicit(&devices[device].halves[i], memory_order_relaxed);
        return true;
    }
    if (!ask(&uuid, device)) return false;
    memcpy(halves, &uuid, sizeof uuid);
    for (int i = 0; i < 2; i++) atomic_store_explicit(&devices[device].halves[i], halves[i], memory_order_relaxed);
    atomic_store_explicit(&devices[device].known, true, memory_order_release);
    return true;
}

unsigned devices_find_slot(CUdevice device) {
    uint64_t halves[2];
    files_look();
    return find_uuid(device, halves) ? files_find_slot((const uint8_t *)halves) : FILES_NO_SLOT;
}

bool devices_find_uuid(CUdevice device, uint8_t uuid[VGPU_UUID_BYTES]) {
    uint64_t halves[2];
    bool found = find_uuid(device, halves);
    if (found) memcpy(uuid, halves, sizeof halves);
    return found;
}

unsigned devices_find_current_slot(void) {
    CUdevice device;
    return DRIVER_CALL(cuCtxGetDevice, &device) == CUDA_SUCCESS ? devices_find_slot(device) : FILES_NO_SLOT;
}

/* The three that have no context of their own are of the current one. */
bool devices_enter(CUstream stream, bool *entered) {
    CUcontext current = NULL, own = NULL;
    *entered = false;
    if ((uintptr_t)stream <= 2) return true;
    DRIVER_CALL(cuCtxGetCurrent, &current);
    *entered = DRIVER_CALL(cuStreamGetCtx, stream, &own) == CUDA_SUCCESS && own != current;
    bool lets = !*entered || DRIVER_CALL(cuCtxPushCurrent_v2, own) == CUDA_SUCCESS;
    *entered = *entered && lets;
    return lets;
}

void devices_leave(bool entered) {
    CUcontext own;
    if (entered) DRIVER_CALL(cuCtxPopCurrent_v2, &own);
}

bool devices_is_captured(CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult asked = per_thread ? DRIVER_CALL(cuStreamIsCapturing_ptsz, stream, &status)
                                : DRIVER_CALL(cuStreamIsCapturing, stream, &status);
    return asked == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}
