/*
 * What this process has on the devices, by address, so that what is given back is known without asking anybody.
 *
 * An address is taken out before the driver frees it: afterwards the driver may give it to another thread at once. Put
 * it back where the driver refuses. What is not there is somebody else's, and only the driver can say about it.
 */
#ifndef VGPU_BLOCKS_H
#define VGPU_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct block {
    uint64_t address;
    const void *context; /* with which it goes */
    uint64_t bytes;
    unsigned slot; /* of the ledger */
};

/* False where there is no memory for it. */
bool blocks_add(struct block block);

/* Into *block; false where it is not there. */
bool blocks_take(uint64_t address, struct block *block);

/* Any one of a context that is about to end, until there is none; *place is 0 for the first and kept between calls. */
bool blocks_take_of(const void *context, unsigned *place, struct block *block);

/* In the child of a fork: it has none. */
void blocks_after_fork(void);

#endif
