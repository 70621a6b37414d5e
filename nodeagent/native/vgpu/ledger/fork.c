/*
 * The child of a fork has none of its parent's memory on the devices, and none of its other threads.
 *
 * Watched from the moment the library is loaded: a lock may be held by any thread before this process has a slot.
 */
#include <stddef.h>

#include "memory/blocks.h"
#include "memory/contexts.h"
#include "compute/bucket.h"
#include "compute/durations.h"
#include "ledger/files.h"
#include "ledger/identity.h"
#include "ledger/ledger.h"
#include "ledger/presence.h"
#include "shared/account.h"
#include "memory/graphs.h"
#include "memory/pools.h"
#include "memory/vmm.h"

typedef void (*handler)(void);

/* One C library has the first, another the second; where programs are made, the second may be part of them. */
extern int __register_atfork(handler prepare, handler parent, handler child, void *owner) __attribute__((weak));
extern int pthread_atfork(handler prepare, handler parent, handler child) __attribute__((weak));
extern void *__dso_handle __attribute__((weak, visibility("hidden")));

static void forget(void) {
    identity_after_fork();
    files_after_fork();
    ledger_after_fork();
    presence_after_fork();
    shared_after_fork();
    bucket_after_fork();
    blocks_after_fork();
    contexts_after_fork();
    durations_after_fork();
    vmm_after_fork();
    pools_after_fork();
    graphs_after_fork();
}

__attribute__((constructor)) static void watch(void) {
    if (__register_atfork) __register_atfork(NULL, NULL, forget, &__dso_handle);
    else if (pthread_atfork) pthread_atfork(NULL, NULL, forget);
}
