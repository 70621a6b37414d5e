/* Which slot of the ledger a device of the driver has. Its UUID is asked for once. */
#ifndef VGPU_DEVICES_H
#define VGPU_DEVICES_H

#include <stdbool.h>

#include "../include/vgpu_files.h"
#include "front/driver.h"

/* FILES_NO_SLOT for one that no limits are said for, or that the driver does not know. */
unsigned devices_find_slot(CUdevice device);

/* False for one that the driver does not know. */
bool devices_find_uuid(CUdevice device, uint8_t uuid[VGPU_UUID_BYTES]);

/* Of the device of the thread's current context. */
unsigned devices_find_current_slot(void);

/*
 * A stream may be of another context than the current one: make that the thread's, and its own again where `entered` says
 * so. False where the driver does not let it.
 */
bool devices_enter(CUstream stream, bool *entered);
void devices_leave(bool entered);

/* Whether what is asked of a stream becomes part of a graph. */
bool devices_is_captured(CUstream stream, bool per_thread);

#endif
