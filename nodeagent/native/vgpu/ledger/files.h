/*
 * The limits and usage files as this process sees them. Owns the mappings, the last limits that were whole, and what is
 * done where there are none.
 */
#ifndef VGPU_FILES_H
#define VGPU_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/vgpu_files.h"

#define FILES_NO_SLOT VGPU_DEVICES
#define FILES_UNLIMITED UINT64_MAX

/* What to do now; looks at the limits file, and again once a second where it could not be used. */
enum vgpu_status files_look(void);

/* Why; for the usage file. */
enum vgpu_reason files_reason(void);

/* What is done where something besides these files fails, such as having no slot. */
enum vgpu_status files_fail_status(void);

/* The slot of a device by its UUID, or FILES_NO_SLOT. */
unsigned files_find_slot(const uint8_t uuid[VGPU_UUID_BYTES]);

/* Memory limit of a slot in bytes, or FILES_UNLIMITED. */
uint64_t files_memory_limit(unsigned slot);

/* How much of a slot's device may be used in percent, or 0 where that is not limited; whether beyond it what is idle. */
uint32_t files_core_limit(unsigned slot);
bool files_is_soft(unsigned slot);

/* Whether that is so for any device. */
bool files_limits_cores(void);

/* vgpu_limits.measured of a slot. */
uint64_t files_measured(unsigned slot);

/* What each context takes of a slot's device, in bytes. */
uint64_t files_context_bytes(unsigned slot);

/* Grows when slots may have changed. */
uint64_t files_generation(void);

/* A file of the place, by its name; -1 where it cannot be opened. */
int files_open(const char *name, bool writable);

/* The usage file, or NULL where there is none to use. */
struct vgpu_usage *files_usage(void);

/* The same, before anybody has looked at the limits; none is made. */
struct vgpu_usage *files_open_usage(void);

/* Whether other containers have the same limits together with this one, by a claim. */
extern atomic_bool files_shared;
static inline bool files_is_shared(void) {
    return atomic_load_explicit(&files_shared, memory_order_relaxed);
}

/* CLOCK_MONOTONIC to a few milliseconds. */
uint64_t files_now_ns(void);

/* In the child of a fork. */
void files_after_fork(void);

#endif
