/* The usage file of a container that has one of its own in memory of its own, where the agent makes none. */
#ifndef VGPU_CREATE_H
#define VGPU_CREATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Have a new file at this path, whole from the moment it is there; one that another process makes meanwhile is as good. False
 * where there is no room: others may be making theirs.
 */
bool create_usage(const char *path);

/* As both files have it over their heads. */
uint64_t create_checksum(uint64_t value, const void *content, size_t bytes);

#endif
