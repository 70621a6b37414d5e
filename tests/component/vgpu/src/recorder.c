/*
 * Stands before everything and writes down, into the file that RECORD names, what a program is told by cuGetProcAddress:
 * base name, version, flags, result, and the file and symbol of the address.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*find)(void *, const char *);
typedef int (*first)(const char *, void **, int, uint64_t);
typedef int (*second)(const char *, void **, int, uint64_t, int *);

static first original_first;
static second original_second;

static find find_real(void) {
    find real = (find)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real ? real : (find)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
}

static void record(const char *kind, const char *base, void *const *place, int version, uint64_t flags, int result) {
    FILE *file = fopen(getenv("RECORD"), "ae");
    Dl_info info = {"/-", NULL, NULL, NULL};
    if (place && *place) dladdr(*place, &info);
    fprintf(file, "%s %s %d %" PRIu64 " %d %s %s\n", kind, base, version, flags, result,
            strrchr(info.dli_fname, '/') + 1, info.dli_sname ? info.dli_sname : "-");
    fclose(file);
}

static int record_first(const char *base, void **place, int version, uint64_t flags) {
    int result = original_first(base, place, version, flags);
    record("first", base, place, version, flags, result);
    return result;
}

static int record_second(const char *base, void **place, int version, uint64_t flags, int *status) {
    int result = original_second(base, place, version, flags, status);
    record("second", base, place, version, flags, result);
    /* What it leads to by its own name is to be written down too. */
    if (result == 0 && strcmp(base, "cuGetProcAddress") == 0 && *place && version >= 12000) {
        original_second = (second)*place;
        *place = (void *)record_second;
    } else if (result == 0 && strcmp(base, "cuGetProcAddress") == 0 && *place) {
        original_first = (first)*place;
        *place = (void *)record_first;
    }
    return result;
}

void *dlsym(void *handle, const char *name) {
    void *found = find_real()(handle, name);
    if (found && strcmp(name, "cuGetProcAddress_v2") == 0) {
        original_second = (second)found;
        return (void *)record_second;
    }
    if (found && strcmp(name, "cuGetProcAddress") == 0) {
        original_first = (first)found;
        return (void *)record_first;
    }
    if (strncmp(name, "cu", 2) == 0 && strncmp(name, "cuda", 4) != 0) record("dlsym", name, &found, 0, 0, 0);
    return found;
}
