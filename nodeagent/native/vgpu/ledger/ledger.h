/*
 * What this process and the others of its container have of each device: without locks, so that a process killed at any
 * instruction holds nobody up and leaves nothing behind but its own slot.
 *
 * A reservation is first made visible, then all are added up: of several that do not fit together, the last to become
 * visible sees the others. What only competes with reservations that are not decided yet waits for these a moment.
 */
#ifndef VGPU_LEDGER_H
#define VGPU_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/vgpu_files.h"

enum verdict {
    LEDGER_UNCOUNTED, /* go on; there is nothing to release */
    LEDGER_GRANTED,   /* go on; what was reserved must be released */
    LEDGER_DENIED
};

/* Come up in this process: limits, usage file, a slot in it. */
void ledger_attach(void);

enum verdict ledger_reserve(unsigned slot, uint64_t bytes);

void ledger_release(unsigned slot, uint64_t bytes);

/* By all processes together, in bytes. */
uint64_t ledger_used(unsigned slot);

/* Who has how much of a device, of the processes that live; returns how many. Pids are as the processes see them. */
struct ledger_holder {
    unsigned pid;
    uint64_t used;
};
unsigned ledger_list(unsigned slot, struct ledger_holder holders[VGPU_PROCESSES]);

void ledger_after_fork(void);

#endif
