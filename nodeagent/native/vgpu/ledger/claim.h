/*
 * One allocation within the limit: reserved before the driver is asked, rolled back where it refuses, known by what the
 * driver gave until that is freed. What is past the limit is CUDA's own error.
 */
#ifndef VGPU_CLAIM_H
#define VGPU_CLAIM_H

#include <stdbool.h>

#include "memory/blocks.h"
#include "front/driver.h"

/* What was reserved for a call to the driver. */
struct claim {
    CUcontext context; /* with which it goes; NULL for what goes with none */
    uint64_t bytes;
    unsigned slot;
    bool counted;
};

/* On the device of the current context. False where it is past the limit; what the driver will refuse is left to it. */
bool claim_begin(struct claim *claim, uint64_t bytes);

/* On a slot, and of no context. */
bool claim_begin_on(struct claim *claim, unsigned slot, uint64_t bytes);

/* It proved to be more or less than was thought. False where the rest does not fit. */
bool claim_correct(struct claim *claim, uint64_t bytes);

/* The driver has answered; where it has given what cannot be kept account of, that is given back. */
CUresult claim_end(const struct claim *claim, CUresult result, enum block_kind kind, uint64_t key,
                   CUresult (*give_back)(uint64_t key));

void claim_drop(const struct claim *claim);

/* Free by `give_back`, and release what was charged for it. What is not known is the driver's affair alone. */
CUresult claim_free(enum block_kind kind, uint64_t key, CUresult (*give_back)(uint64_t key));

/* The same in parts: after it was tried to free what was, or was not, found among the blocks. */
CUresult claim_end_free(bool found, const struct block *block, CUresult result);

#endif
