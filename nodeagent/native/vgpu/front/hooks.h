/*
 * The entry points that this library has hooks for, and how a question for one of them is answered: by the address that
 * NVIDIA's library gave for it, so that each gets the hook of its own ABI and nothing is taken for what it is not.
 */
#ifndef VGPU_HOOKS_H
#define VGPU_HOOKS_H

#include "front/loader.h"

/* A function that stands before the driver's of the same name; `exports.map` lists them too, and a test holds both equal. */
#define HOOK __attribute__((visibility("default")))

/* A flag of a question to cuGetProcAddress. */
#define HOOKS_PER_THREAD_STREAM 2u

struct hook {
    const char *symbol;
    const char *base; /* what cuGetProcAddress calls it; NULL where it has no such name */
    void *place;
    int since;      /* the version of CUDA from which a program means this one by the base name */
    int per_thread; /* only where it asks for the stream per thread */
    enum library owner;
};

/* By its symbol, or NULL. */
const struct hook *hooks_find(const char *symbol);

/* The library's own function that this one stands before; NULL where it has none. */
void *hooks_original(const struct hook *hook);

/* The hook that stands before what is at this address of that library, or NULL. */
const struct hook *hooks_before(enum library library, const void *address);

/* The hook of a base name for a program of that version, or NULL; NULL too for a version that this library does not know. */
const struct hook *hooks_choose(const char *base, int version, unsigned long long flags);

#endif
