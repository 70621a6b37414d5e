/*
 * The driver's own way to its entry points: asked as the program asks, and what the driver answers is replaced by the hook
 * that stands before it. The address decides; where the driver gives one that none of its symbols has, the base name with
 * version and flags does, up to the version of CUDA that this library knows. What is newer passes through.
 */
#ifndef VGPU_ROUTING_H
#define VGPU_ROUTING_H

#include "front/driver.h"
#include "front/hooks.h"

HOOK CUresult cuGetProcAddress(const char *base, void **place, int version, uint64_t flags);
HOOK CUresult cuGetProcAddress_v2(const char *base, void **place, int version, uint64_t flags,
                                  CUdriverProcAddressQueryResult *status);
HOOK CUresult cuGetProcAddress_v2_ptsz(const char *base, void **place, int version, uint64_t flags,
                                       CUdriverProcAddressQueryResult *status);

#endif
