/*
 * What the ledger and its files do in a process, asked line by line:
 *
 *   look                 status, reason, known slots, and the memory limit of slot 0
 *   find HEX             the slot of a device
 *   reserve SLOT BYTES   granted, denied or uncounted
 *   release SLOT BYTES
 *   used SLOT            by all processes
 *   who                  the process's pid
 *   eat BYTES            memory of its container, if it has so much
 *   fork                 from here on the child answers, until `end`; then the parent
 *   leave                a child that asks for nothing and lives on; its pid
 *   close                every descriptor but those of standard input, output and error, as daemons do
 *   exec                 the same process with a new image
 *   watch LOW HIGH       looks until the limit of slot 0 has moved 40 times; how often it was neither of the two
 *   forks COUNT          children while four threads look and reserve; how many came through
 *   pay SLOT NS          for a launch; for how long that waited, in ns
 *   cut NAME             a file of the place, to nothing
 *   garble NAME          all of its bytes are ones
 *   remove NAME
 *   grab                 all locks on the shared file's memory that nobody else has, and its numbers
 *   end
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute/bucket.h"
#include "ledger/files.h"
#include "ledger/ledger.h"

#define MOVES 40
#define THREADS 4
#define PATIENCE_S 20

static atomic_int busy;

/* Byte by byte: what is buffered would be read by parent and child. */
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

static void look(void) {
    ledger_attach();
    enum vgpu_status status = files_look();
    dprintf(STDOUT_FILENO, "%u %u %" PRIu64 " %" PRIu64 "\n", (unsigned)status, (unsigned)files_reason(),
            files_generation(), files_memory_limit(0));
}

static void find(const char *hex) {
    uint8_t uuid[VGPU_UUID_BYTES];
    for (unsigned i = 0; i < VGPU_UUID_BYTES; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        uuid[i] = (uint8_t)byte;
    }
    dprintf(STDOUT_FILENO, "%u\n", files_find_slot(uuid));
}

static void watch(uint64_t low, uint64_t high) {
    uint64_t before = 0, wrong = 0;
    for (int moves = 0; moves < MOVES;) {
        files_look();
        uint64_t limit = files_memory_limit(0);
        wrong += limit != low && limit != high;
        moves += limit != before;
        before = limit;
    }
    dprintf(STDOUT_FILENO, "%" PRIu64 "\n", wrong);
}

static void *keep_busy(void *nothing) {
    while (atomic_load(&busy))
        if (ledger_reserve(0, 1) == LEDGER_GRANTED) ledger_release(0, 1);
    return nothing;
}

static void fork_often(unsigned count) {
    pthread_t threads[THREADS];
    unsigned through = 0;
    atomic_store(&busy, 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, keep_busy, NULL);
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE_S);
            _exit(ledger_reserve(0, 1) == LEDGER_DENIED);
        }
        int status = -1;
        waitpid(child, &status, 0);
        through += status == 0;
    }
    atomic_store(&busy, 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    dprintf(STDOUT_FILENO, "%u\n", through);
}

/* In the parent only when the child has ended. */
static void hand_over(void) {
    pid_t child = fork();
    if (child > 0) waitpid(child, NULL, 0);
    dprintf(STDOUT_FILENO, child == 0 ? "child\n" : "parent\n");
}

static void leave_child(void) {
    if (fork() != 0) return;
    dprintf(STDOUT_FILENO, "%d\n", (int)getpid());
    alarm(PATIENCE_S);
    pause();
    _exit(0);
}

static void close_rest(void) {
    for (int file = 3; file < 4096; file++) close(file);
    dprintf(STDOUT_FILENO, "closed\n");
}

static void eat(uint64_t bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t at = 0; memory != MAP_FAILED && at < bytes; at += 4096) memory[at] = 1;
    dprintf(STDOUT_FILENO, "eaten\n");
}

static void pay(unsigned slot, uint64_t cost) {
    struct timespec before, after;
    ledger_attach();
    clock_gettime(CLOCK_MONOTONIC, &before);
    bucket_pay(slot, cost);
    clock_gettime(CLOCK_MONOTONIC, &after);
    dprintf(STDOUT_FILENO, "%lld\n",
            (long long)(after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec);
}

static void report(bool done) {
    dprintf(STDOUT_FILENO, "%s\n", done ? "done" : strerror(errno));
}

static void garble(const char *name) {
    char ones[4096];
    int file = files_open(name, true);
    off_t bytes = lseek(file, 0, SEEK_END);
    memset(ones, 0xff, sizeof ones);
    for (off_t at = 0; at < bytes; at += (off_t)sizeof ones)
        pwrite(file, ones, bytes - at < (off_t)sizeof ones ? (size_t)(bytes - at) : sizeof ones, at);
    close(file);
    report(bytes > 0);
}

static void remove_file(const char *name) {
    char path[128];
    const char *place = getenv("NODEAGENT_VGPU_DIR");
    snprintf(path, sizeof path, "%s/%s", place ? place : "/run/nodeagent/vgpu", name);
    report(unlink(path) == 0);
}

/* The descriptor stays open, and with it the locks. */
static void grab(void) {
    int file = files_open("shared", true);
    unsigned got = 0;
    for (uint64_t at = 0; at < VGPU_DEVICES * VGPU_SHARED_DEVICE; at += VGPU_SHARED_BYTES) {
        struct flock lock = {
            .l_type = F_WRLCK, .l_start = (off_t)(VGPU_SHARED_MEMORY + at), .l_len = (off_t)VGPU_SHARED_BYTES};
        got += fcntl(file, F_OFD_SETLK, &lock) == 0;
        /* Behind what somebody has there. */
        lock.l_start += (off_t)VGPU_SHARED_BYTES / 2;
        lock.l_len /= 2;
        got += fcntl(file, F_OFD_SETLK, &lock) == 0;
    }
    for (unsigned number = 0; number < VGPU_PROCESSES + VGPU_DEVICES; number++) {
        struct flock lock = {.l_type = F_WRLCK, .l_start = (off_t)(VGPU_SHARED_PROCESS + number), .l_len = 1};
        got += fcntl(file, F_OFD_SETLK, &lock) == 0;
    }
    report(got > 0);
}

int main(int count, char **words) {
    static const char *const verdicts[] = {"uncounted", "granted", "denied"};
    char line[128], hex[64];
    unsigned slot;
    uint64_t bytes, high;
    (void)count;
    while (read_line(line, sizeof line)) {
        if (strcmp(line, "end") == 0) return 0;
        else if (strcmp(line, "look") == 0) look();
        else if (strcmp(line, "who") == 0) dprintf(STDOUT_FILENO, "%d\n", (int)getpid());
        else if (strcmp(line, "fork") == 0) hand_over();
        else if (strcmp(line, "leave") == 0) leave_child();
        else if (strcmp(line, "close") == 0) close_rest();
        else if (strcmp(line, "exec") == 0) execv("/proc/self/exe", words);
        else if (sscanf(line, "find %63s", hex) == 1) find(hex);
        else if (sscanf(line, "watch %" SCNu64 " %" SCNu64, &bytes, &high) == 2) watch(bytes, high);
        else if (sscanf(line, "forks %u", &slot) == 1) fork_often(slot);
        else if (sscanf(line, "eat %" SCNu64, &bytes) == 1) eat(bytes);
        else if (sscanf(line, "pay %u %" SCNu64, &slot, &bytes) == 2) pay(slot, bytes);
        else if (sscanf(line, "cut %63s", hex) == 1) report(ftruncate(files_open(hex, true), 0) == 0);
        else if (sscanf(line, "garble %63s", hex) == 1) garble(hex);
        else if (sscanf(line, "remove %63s", hex) == 1) remove_file(hex);
        else if (strcmp(line, "grab") == 0) grab();
        else if (sscanf(line, "used %u", &slot) == 1) dprintf(STDOUT_FILENO, "%" PRIu64 "\n", ledger_used(slot));
        else if (sscanf(line, "reserve %u %" SCNu64, &slot, &bytes) == 2)
            dprintf(STDOUT_FILENO, "%s\n", verdicts[ledger_reserve(slot, bytes)]);
        else if (sscanf(line, "release %u %" SCNu64, &slot, &bytes) == 2) {
            ledger_release(slot, bytes);
            dprintf(STDOUT_FILENO, "released\n");
        } else return 2;
    }
    return 0;
}
