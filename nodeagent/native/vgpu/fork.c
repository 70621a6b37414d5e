/*
 * The child of a fork has none of its parent's memory on the devices, and none of its other threads.
 *
 * Watched from the moment the library is loaded: a lock may be held by any thread before this process has a slot.
 */
#include <pthread.h>

#include "blocks.h"
#include "files.h"
#include "ledger.h"

static void forget(void)
{
    files_after_fork();
    ledger_after_fork();
    blocks_after_fork();
}

__attribute__((constructor)) static void watch(void)
{
    pthread_atfork(NULL, NULL, forget);
}
