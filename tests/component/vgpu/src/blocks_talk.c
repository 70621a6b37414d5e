/*
 * The table of what a process has, asked line by line:
 *
 *   add KIND KEY OWNER SLOT BYTES
 *   take KIND KEY          owner, slot and bytes, or `unknown`
 *   drop OWNER             how many it had, and their bytes
 *   keep OWNER             the same, but all are put back
 *   hammer THREADS TURNS   each thread adds and takes its own keys, ends an owner, and takes what others take
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

#include "memory/blocks.h"

#define THREADS_MOST 64
#define STEP 512u
#define SHARED_AT 64u

static unsigned turns;
static atomic_uint wrong, shared_added, shared_taken;

static int read_line(char *line, size_t bytes) {
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (read(STDIN_FILENO, &line[i], 1) != 1) return 0;
        if (line[i] == '\n') {
            line[i] = '\0';
            return 1;
        }
    }
    return 0;
}

static void *hammer(void *number) {
    uint64_t base = (uint64_t)(uintptr_t)number << 40;
    struct block block;
    for (unsigned i = 0; i < turns; i++) {
        uint64_t address = base + (uint64_t)(i % 100) * STEP;
        blocks_add((struct block){address, BLOCK_LINEAR, 0, number, i});
        blocks_add((struct block){SHARED_AT, BLOCK_LINEAR, 0, &turns, 1});
        shared_added++;
        shared_taken += blocks_take(BLOCK_LINEAR, SHARED_AT, &block);
        struct block_list *list = i % 1000 ? NULL : blocks_take_of(number);
        int found = i % 1000 ? blocks_take(BLOCK_LINEAR, address, &block) : blocks_pop(&list, &block);
        wrong += !found || list || block.key != address || block.owner != number || block.bytes != i ||
                 blocks_take(BLOCK_LINEAR, address, &block);
    }
    return NULL;
}

static void run(unsigned threads) {
    pthread_t running[THREADS_MOST];
    for (unsigned i = 0; i < threads && i < THREADS_MOST; i++)
        pthread_create(&running[i], NULL, hammer, (void *)(uintptr_t)(i + 1));
    for (unsigned i = 0; i < threads && i < THREADS_MOST; i++) pthread_join(running[i], NULL);
    dprintf(STDOUT_FILENO, "%u %u\n", (unsigned)wrong, shared_added - shared_taken);
}

int main(void) {
    char line[128];
    struct block block;
    uint64_t address, context, bytes;
    unsigned slot, threads, kind;
    while (read_line(line, sizeof line)) {
        if (strcmp(line, "end") == 0) return 0;
        else if (strcmp(line, "fork") == 0) {
            pid_t child = fork();
            if (child > 0) waitpid(child, NULL, 0);
            dprintf(STDOUT_FILENO, child == 0 ? "child\n" : "parent\n");
        } else if (sscanf(line, "add %u %" SCNu64 " %" SCNu64 " %u %" SCNu64, &kind, &address, &context, &slot,
                          &bytes) == 5) {
            int added = blocks_add((struct block){address, kind, slot, (void *)(uintptr_t)context, bytes});
            dprintf(STDOUT_FILENO, "%d\n", added);
        } else if (sscanf(line, "take %u %" SCNu64, &kind, &address) == 2) {
            if (blocks_take(kind, address, &block))
                dprintf(STDOUT_FILENO, "%ju %u %" PRIu64 "\n", (uintmax_t)(uintptr_t)block.owner, block.slot,
                        block.bytes);
            else dprintf(STDOUT_FILENO, "unknown\n");
        } else if (sscanf(line, "drop %" SCNu64, &context) == 1) {
            unsigned count = 0;
            struct block_list *list = blocks_take_of((void *)(uintptr_t)context);
            for (bytes = 0; blocks_pop(&list, &block); count++) bytes += block.bytes;
            dprintf(STDOUT_FILENO, "%u %" PRIu64 "\n", count, bytes);
        } else if (sscanf(line, "keep %" SCNu64, &context) == 1) {
            blocks_put_back(blocks_take_of((void *)(uintptr_t)context));
            dprintf(STDOUT_FILENO, "kept\n");
        } else if (sscanf(line, "hammer %u %u", &threads, &turns) == 2) run(threads);
        else return 2;
    }
    return 0;
}
