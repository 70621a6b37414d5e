/* Which process this is, and whether another one still lives. */
#ifndef VGPU_IDENTITY_H
#define VGPU_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

/* Pid and start time as in vgpu_process.owner, without the state; start 0 where /proc does not tell. */
uint64_t identity_own(void);

/* The number of the pid namespace, or 0. */
uint64_t identity_namespace(void);

/* Of a process of the same namespace. One that has ended and was not waited for is dead: its memory is given back. */
bool identity_is_alive(uint64_t identity);

/* In the child of a fork: it is another one. */
void identity_after_fork(void);

#endif
