/* Starts two programs in turns and says of each how long it took and how much memory it had:
 *   pairs COUNT ORIGINAL COPY PROGRAM-A PROGRAM-B ARGUMENT...
 * Before each start ORIGINAL is copied over COPY. A line for each turn: nanoseconds, those of a processor,
 * and KiB of A, then of B.
 * It is small itself, because the kernel counts what a process was before it became the program. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void copy(const char *from, const char *to) {
    static char content[1 << 22];
    FILE *file = fopen(from, "rb");
    if (!file) exit(2);
    size_t size = fread(content, 1, sizeof content, file);
    fclose(file);
    file = fopen(to, "wb");
    if (!file || fwrite(content, 1, size, file) != size || fclose(file)) exit(2);
}

static void start(char *program, char **arguments, long told[3]) {
    struct timespec began, ended;
    struct rusage usage;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &began);
    pid_t child = vfork();
    if (child < 0) exit(2);
    if (child == 0) {
        arguments[0] = program;
        execv(program, arguments);
        _exit(127);
    }
    if (wait4(child, &status, 0, &usage) < 0 || !WIFEXITED(status) || WEXITSTATUS(status)) exit(3);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    long seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    told[0] = (ended.tv_sec - began.tv_sec) * 1000000000 + ended.tv_nsec - began.tv_nsec;
    told[1] = seconds * 1000000000 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
    told[2] = usage.ru_maxrss;
}

int main(int count, char **words) {
    if (count < 6) return 2;
    char *programs[] = {words[4], words[5]};
    for (long left = atol(words[1]); left; left--) {
        long told[2][3];
        for (int each = 0; each < 2; each++) {
            copy(words[2], words[3]);
            start(programs[each], words + 5, told[each]);
        }
        printf("%ld %ld %ld %ld %ld %ld\n", told[0][0], told[0][1], told[0][2], told[1][0], told[1][1], told[1][2]);
    }
    return 0;
}
