/*
 * The table of what a process has, asked line by line:
 *
 *   add ADDRESS CONTEXT SLOT BYTES
 *   take ADDRESS           context, slot and bytes, or `unknown`
 *   drop CONTEXT           how many it had, and their bytes
 *   hammer THREADS TURNS   each thread adds and takes its own addresses, ends a context, and takes what others take
 *                          too; how many turns were not as they must be
 *   fork, end              as in ledger_talk.c
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blocks.h"

#define THREADS_MOST 64
#define STEP 512u
#define SHARED_AT 64u

static unsigned turns;
static atomic_uint wrong, shared_added, shared_taken;

static int read_line(char *line, size_t bytes)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (read(STDIN_FILENO, &line[i], 1) != 1)
            return 0;
        if (line[i] == '\n') {
            line[i] = '\0';
            return 1;
        }
    }
    return 0;
}

static void *hammer(void *number)
{
    uint64_t base = (uint64_t)(uintptr_t)number << 40;
    struct block block;
    for (unsigned i = 0; i < turns; i++) {
        uint64_t address = base + (uint64_t)(i % 100) * STEP;
        blocks_add((struct block){address, number, i, 0});
        blocks_add((struct block){SHARED_AT, &turns, 1, 0});
        shared_added++;
        shared_taken += blocks_take(SHARED_AT, &block);
        int found = i % 1000 ? blocks_take(address, &block) : blocks_take_of(number, &(unsigned){0}, &block);
        wrong += !found || block.address != address || block.context != number || block.bytes != i ||
                 blocks_take(address, &block);
    }
    return NULL;
}

static void run(unsigned threads)
{
    pthread_t running[THREADS_MOST];
    for (unsigned i = 0; i < threads && i < THREADS_MOST; i++)
        pthread_create(&running[i], NULL, hammer, (void *)(uintptr_t)(i + 1));
    for (unsigned i = 0; i < threads && i < THREADS_MOST; i++)
        pthread_join(running[i], NULL);
    dprintf(STDOUT_FILENO, "%u %u\n", (unsigned)wrong, shared_added - shared_taken);
}

int main(void)
{
    char line[128];
    struct block block;
    uint64_t address, context, bytes;
    unsigned slot, threads;
    while (read_line(line, sizeof line)) {
        if (strcmp(line, "end") == 0)
            return 0;
        else if (strcmp(line, "fork") == 0) {
            pid_t child = fork();
            if (child > 0)
                waitpid(child, NULL, 0);
            dprintf(STDOUT_FILENO, child == 0 ? "child\n" : "parent\n");
        } else if (sscanf(line, "add %" SCNu64 " %" SCNu64 " %u %" SCNu64, &address, &context, &slot, &bytes) == 4) {
            int added = blocks_add((struct block){address, (void *)(uintptr_t)context, bytes, slot});
            dprintf(STDOUT_FILENO, "%d\n", added);
        } else if (sscanf(line, "take %" SCNu64, &address) == 1) {
            if (blocks_take(address, &block))
                dprintf(STDOUT_FILENO, "%ju %u %" PRIu64 "\n", (uintmax_t)(uintptr_t)block.context, block.slot,
                        block.bytes);
            else
                dprintf(STDOUT_FILENO, "unknown\n");
        } else if (sscanf(line, "drop %" SCNu64, &context) == 1) {
            unsigned count = 0, place = 0;
            for (bytes = 0; blocks_take_of((void *)(uintptr_t)context, &place, &block); count++)
                bytes += block.bytes;
            dprintf(STDOUT_FILENO, "%u %" PRIu64 "\n", count, bytes);
        } else if (sscanf(line, "hammer %u %u", &threads, &turns) == 2)
            run(threads);
        else
            return 2;
    }
    return 0;
}
