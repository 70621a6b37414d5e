/*
 * A lock, mostly for sections of a few hundred instructions: no symbol of any thread library, and it can be made anew
 * after a fork.
 */
#ifndef VGPU_LOCK_H
#define VGPU_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct lock {
    atomic_int held;
};

static inline void lock_take(struct lock *lock) {
    int tries = 0;
    while (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire))
        while (atomic_load_explicit(&lock->held, memory_order_relaxed))
            if (++tries > 4096) nanosleep(&(struct timespec){0, 50000}, NULL);
            else if (tries % 64 == 0) sched_yield();
}

static inline bool lock_try(struct lock *lock) {
    return !atomic_exchange_explicit(&lock->held, 1, memory_order_acquire);
}

static inline void lock_give(struct lock *lock) {
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
