/* See fork.h. */
#include "fork.h"

#include <pthread.h>
#include <stdatomic.h>

#include "files.h"
#include "ledger.h"

static atomic_int watched;

static void forget(void)
{
    files_after_fork();
    ledger_after_fork();
}

void fork_watch(void)
{
    if (!atomic_exchange(&watched, 1))
        pthread_atfork(NULL, NULL, forget);
}
