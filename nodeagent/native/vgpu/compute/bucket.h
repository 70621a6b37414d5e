/*
 * The container's part of a device's time, which all its processes draw on: a launch takes up as much as it costs, and the
 * next one waits until that has passed.
 */
#ifndef VGPU_BUCKET_H
#define VGPU_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

/* False where the device's time is not limited. */
bool bucket_is_limited(unsigned slot);

/* Pay for a launch, and wait until what was paid for before has passed. */
void bucket_pay(unsigned slot, uint64_t cost_ns);

/* What was paid for has proved to cost another amount. */
void bucket_correct(unsigned slot, uint64_t paid_ns, uint64_t cost_ns);

/* In the child of a fork: what its parent has paid for is not its own. */
void bucket_after_fork(void);

#endif
