/*
 * A program that calls the driver, asked line by line:
 *
 *   call ROUTE SYMBOL ARGUMENT...   what it returned, then what it wrote
 *   where ROUTE SYMBOL              file and symbol of the address
 *   fork, end                       as in ledger_talk.c
 *   become PROGRAM                  the same process with this program
 *
 * A route is `dlsym` with the driver's handle, `default` with none, or `VERSION:FLAGS` for cuGetProcAddress_v2. An
 * argument is a number, `out` for 8 bytes to write to, or `@` and fields of a structure with commas between: `q1` has 8
 * bytes, `i1` has 4, `z9` is 9 bytes of nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS 11
#define STRUCTURE_BYTES 256

typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                   uint64_t);
typedef int (*get_address)(const char *, void **, int, uint64_t, int *);

static void *driver;

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

static void *find(const char *route, const char *symbol) {
    void *place = NULL;
    int version;
    unsigned flags;
    if (strcmp(route, "default") == 0) return dlsym(RTLD_DEFAULT, symbol);
    if (sscanf(route, "%d:%u", &version, &flags) != 2) return dlsym(driver, symbol);
    get_address ask = (get_address)dlsym(driver, "cuGetProcAddress_v2");
    return ask && ask(symbol, &place, version, flags, NULL) == 0 ? place : NULL;
}

static void say_where(const void *place) {
    Dl_info info;
    if (!place || !dladdr(place, &info)) dprintf(STDOUT_FILENO, "nowhere\n");
    else dprintf(STDOUT_FILENO, "%s %s\n", strrchr(info.dli_fname, '/') + 1, info.dli_sname ? info.dli_sname : "-");
}

static void fill(char structure[STRUCTURE_BYTES], const char *fields) {
    size_t at = 0;
    for (char *next; *fields && at + 8 <= STRUCTURE_BYTES; fields = *next ? next + 1 : next) {
        uint64_t value = strtoull(fields + 1, &next, 10);
        size_t bytes = *fields == 'q' ? 8 : *fields == 'i' ? 4 : (size_t)value;
        if (*fields != 'z') memcpy(structure + at, &value, bytes);
        at += bytes;
    }
}

static void call(void *place, char *words) {
    static char structures[ARGUMENTS][STRUCTURE_BYTES];
    uint64_t arguments[ARGUMENTS] = {0}, written[ARGUMENTS] = {0};
    char line[256];
    int is_out[ARGUMENTS] = {0}, count = 0, length = 0;
    for (char *word = strtok(words, " "); word && count < ARGUMENTS; word = strtok(NULL, " "), count++) {
        is_out[count] = strcmp(word, "out") == 0;
        arguments[count] = is_out[count] ? (uint64_t)(uintptr_t)&written[count] : strtoull(word, NULL, 10);
        if (*word == '@') {
            fill(memset(structures[count], 0, STRUCTURE_BYTES), word + 1);
            arguments[count] = (uint64_t)(uintptr_t)structures[count];
        }
    }
    if (!place) {
        dprintf(STDOUT_FILENO, "nowhere\n");
        return;
    }
    const uint64_t *a = arguments;
    int code = ((any)place)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
    length = snprintf(line, sizeof line, "%d", code);
    for (int i = 0; i < count; i++)
        if (is_out[i]) length += snprintf(line + length, sizeof line - (size_t)length, " %" PRIu64, written[i]);
    dprintf(STDOUT_FILENO, "%s\n", line);
}

int main(void) {
    char line[256], route[32], symbol[64];
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    while (driver && read_line(line, sizeof line)) {
        int used = 0;
        if (strcmp(line, "end") == 0) return 0;
        else if (strcmp(line, "fork") == 0) {
            pid_t child = fork();
            if (child > 0) waitpid(child, NULL, 0);
            dprintf(STDOUT_FILENO, child == 0 ? "child\n" : "parent\n");
        } else if (sscanf(line, "become %31s", route) == 1) execlp(route, route, (char *)NULL);
        else if (sscanf(line, "where %31s %63s", route, symbol) == 2) say_where(find(route, symbol));
        else if (sscanf(line, "call %31s %63s%n", route, symbol, &used) == 2) call(find(route, symbol), line + used);
        else return 2;
    }
    return driver ? 0 : 3;
}
