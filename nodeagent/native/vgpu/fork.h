/* The child of a fork has none of its parent's memory on the devices, and none of its other threads. */
#ifndef VGPU_FORK_H
#define VGPU_FORK_H

/* From now on; once is enough. */
void fork_watch(void);

#endif
