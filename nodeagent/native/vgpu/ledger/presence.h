/*
 * Whether the process of a slot lives, for whoever is in another pid namespace, where its pid means nothing: each process
 * holds a lock on one byte of the usage file, which the kernel takes away when the process has ended, however it did.
 *
 * The lock belongs to an open file that a mapping alone refers to: there is no descriptor that a program could close, and
 * a child has no part in the mapping.
 */
#ifndef VGPU_PRESENCE_H
#define VGPU_PRESENCE_H

enum presence {
    PRESENCE_HELD,   /* by this process from now on */
    PRESENCE_TAKEN,  /* another process has it */
    PRESENCE_UNKNOWN /* such locks cannot be had here */
};

enum presence presence_hold(unsigned slot);

void presence_drop(void);

/* A descriptor with which the lock of another process is held for a moment, to be closed; -1 where it is not free. */
int presence_try(unsigned slot);

void presence_after_fork(void);

#endif
