/*
 * What the processes of all containers have together that share one claim: the account is kept by the kernel, as locks on a
 * file that nobody maps (vgpu_shared). So no container can end the processes of another, nor write anything into what it has.
 *
 * It takes a descriptor. A program that closes it, as daemons do, loses nothing: a mapping keeps the locks until the
 * same is shown by another descriptor.
 */
#ifndef VGPU_ACCOUNT_H
#define VGPU_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

enum attempt { FITS, CONTESTED, TOO_MUCH };

/* Whether this process has a number among all of them, from now on. */
bool shared_attach(void);

/* Reserve, within what all may have. *decided is what others and this process had when it did not fit. */
enum attempt shared_try(unsigned device, uint64_t bytes, uint64_t limit, uint64_t *decided);

void shared_release(unsigned device, uint64_t bytes);

/* By all processes together, in bytes. */
uint64_t shared_used(unsigned device);

/*
 * Have vgpu_shared.due_ns become what `change` makes of it, which is told what it was: *due. False where it could not be
 * changed.
 */
typedef uint64_t due_change(uint64_t due, uint64_t amount, uint64_t now);
bool shared_change_due(unsigned device, due_change *change, uint64_t amount, uint64_t now, uint64_t *due);

void shared_after_fork(void);

#endif
