/*
 * spin ENTRY MICROSECONDS MILLISECONDS: launches kernels of that length in one of the ways there are, for so long, and
 * prints how many of them, and how many microseconds it was until all were done. It launches as far ahead as it is let.
 * On a real device a file of PTX comes last, and what stands for the microseconds is how many turns its kernel `spin` makes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t u;
typedef int (*any)(u, u, u, u, u, u, u, u, u, u, u);
#define CALL(name, ...) call(name, (u[11]){__VA_ARGS__})

static void *driver;
static u turns, unused;
static void *arguments[] = {&turns, &unused};

static char *read_code(const char *path) {
    static char code[1 << 16];
    FILE *file = fopen(path, "r");
    if (!file || !fread(code, 1, sizeof code - 1, file)) exit(4);
    fclose(file);
    return code;
}

static int call(const char *name, const u *a) {
    any function = (any)dlsym(driver, name);
    if (!function) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
}

static u now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u)now.tv_sec * 1000000u + (u)now.tv_nsec / 1000u;
}

/* A graph of one kernel. */
static void *make_graph(void *function) {
    void *stream, *graph, *made;
    CALL("cuStreamCreate", (u)&stream, 0);
    CALL("cuStreamBeginCapture_v2", (u)stream, 0);
    u before = now_us();
    for (int i = 0; i < 16; i++) CALL("cuLaunchKernel", (u)function, 1, 1, 1, 1, 1, 1, 0, (u)stream, (u)arguments, 0);
    if (now_us() - before > 50000) fprintf(stderr, "waited while a stream was captured\n");
    CALL("cuStreamEndCapture", (u)stream, (u)&graph);
    CALL("cuGraphInstantiateWithFlags", (u)&made, (u)graph, 0);
    return made;
}

static int launch(const char *entry, void *function, void *graph) {
    struct {
        unsigned sizes[7];
        void *stream, *attributes;
        unsigned count;
    } shape = {{1, 1, 1, 1, 1, 1, 0}, NULL, NULL, 0};
    struct {
        void *function;
        unsigned sizes[7];
        void *stream, **arguments;
    } several = {function, {1, 1, 1, 1, 1, 1, 0}, NULL, arguments};
    if (strncmp(entry, "cuGraph", 7) == 0) return CALL(entry, (u)graph, 0);
    if (strncmp(entry, "cuLaunchKernelEx", 16) == 0) return CALL(entry, (u)&shape, (u)function, (u)arguments, 0);
    if (strcmp(entry, "cuLaunchCooperativeKernelMultiDevice") == 0) return CALL(entry, (u)&several, 1, 0);
    return CALL(entry, (u)function, 1, 1, 1, 1, 1, 1, 0, 0, (u)arguments, 0);
}

int main(int count, char **words) {
    void *context, *module, *function;
    char name[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *code = count == 5 ? read_code(words[4]) : "code";
    if (count < 4 || !driver || CALL("cuInit", 0) || CALL("cuDevicePrimaryCtxRetain", (u)&context, 0) ||
        CALL("cuCtxSetCurrent", (u)context) || CALL("cuModuleLoadData", (u)&module, (u)code))
        return 2;
    turns = strtoull(words[2], NULL, 10);
    snprintf(name, sizeof name, count == 5 ? "spin" : "us_%s", words[2]);
    if (CALL("cuModuleGetFunction", (u)&function, (u)module, (u)name)) return 2;
    void *graph = strncmp(words[1], "cuGraph", 7) == 0 ? make_graph(function) : NULL;
    unsigned launched = 0;
    u start = now_us(), until = start + strtoull(words[3], NULL, 10) * 1000;
    for (; now_us() < until; launched++)
        if (launch(words[1], function, graph)) return 3;
    CALL("cuStreamSynchronize", 0);
    printf("%u %llu\n", graph ? launched * 16 : launched, (unsigned long long)(now_us() - start));
    return 0;
}
