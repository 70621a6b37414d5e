/*
 * ways LIBRARY WAY BYTES...: a program that finds the driver's functions in one of the ways that programs have, and takes
 * memory of these sizes; prints what each call returned. LIBRARY is `-`, or this same source as a library, opened with
 * RTLD_DEEPBIND, which then does it instead.
 *
 *   linked      the program, or the library, is linked with the driver
 *   handle      dlopen, dlsym            path       by its full name, without a link
 *   global      RTLD_DEFAULT             wide       the program's own handle
 *   next        RTLD_NEXT                namespace  dlmopen
 *   itself      dlsym of dlsym, in the C library           versioned   dlvsym of dlsym there
 *   address     cuGetProcAddress_v2      first      cuGetProcAddress, of which _v2 is asked for, of which the rest
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*any)(uint64_t, uint64_t, uint64_t);
typedef void *(*find)(void *, const char *);
typedef int (*address)(const char *, void **, int, uint64_t, int *);

#ifdef LINKED
extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t);
#endif

static void *driver;

static void *ask_driver(int depth, const char *symbol) {
    address ask = (address)dlsym(driver, depth ? "cuGetProcAddress" : "cuGetProcAddress_v2");
    void *place = NULL;
    char base[64];
    snprintf(base, sizeof base, "%s", symbol);
    if (strstr(base, "_v2")) *strstr(base, "_v2") = '\0';
    if (depth && (ask("cuGetProcAddress", &place, 12080, 0, NULL) != 0 || !place)) return NULL;
    ask = depth ? (address)place : ask;
    place = NULL;
    return ask(base, &place, 12080, 0, NULL) == 0 ? place : NULL;
}

static void *find_by(const char *way, const char *symbol) {
#ifdef LINKED
    if (strcmp(symbol, "cuMemAlloc_v2") == 0) return (void *)cuMemAlloc_v2;
    return strcmp(symbol, "cuInit") == 0            ? (void *)cuInit
           : strcmp(symbol, "cuCtxSetCurrent") == 0 ? (void *)cuCtxSetCurrent
                                                    : (void *)cuDevicePrimaryCtxRetain;
#endif
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    if (strcmp(way, "global") == 0) return dlsym(RTLD_DEFAULT, symbol);
    if (strcmp(way, "next") == 0) return dlsym(RTLD_NEXT, symbol);
    if (strcmp(way, "wide") == 0) return dlsym(dlopen(NULL, RTLD_NOW), symbol);
    if (strcmp(way, "itself") == 0) return ((find)dlsym(libc, "dlsym"))(driver, symbol);
    if (strcmp(way, "versioned") == 0) {
        void *found = dlvsym(libc, "dlsym", "GLIBC_2.2.5");
        found = found ? found : dlvsym(libc, "dlsym", "GLIBC_2.17");
        return found ? ((find)found)(driver, symbol) : NULL;
    }
    if (strcmp(way, "address") == 0 || strcmp(way, "first") == 0) return ask_driver(strcmp(way, "first") == 0, symbol);
    return dlsym(driver, symbol);
}

static void open_driver(const char *way) {
    const char *path = getenv("DRIVER");
    int mode =
        strcmp(way, "global") == 0 || strcmp(way, "next") == 0 || strcmp(way, "wide") == 0 ? RTLD_GLOBAL : RTLD_LOCAL;
    if (strcmp(way, "namespace") == 0) driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    else driver = dlopen(strcmp(way, "path") == 0 ? path : "libcuda.so.1", RTLD_NOW | mode);
}

__attribute__((visibility("default"))) int run(int count, char **words) {
    const char *way = words[0];
    void *context = NULL;
    open_driver(way);
    any start = (any)find_by(way, "cuInit"), retain = (any)find_by(way, "cuDevicePrimaryCtxRetain");
    any set_current = (any)find_by(way, "cuCtxSetCurrent"), take = (any)find_by(way, "cuMemAlloc_v2");
    if (!start || !retain || !set_current || !take) {
        printf("nowhere %s\n", dlerror());
        return 2;
    }
    if (start(0, 0, 0) || retain((uintptr_t)&context, 0, 0) || set_current((uintptr_t)context, 0, 0)) return 3;
    for (int i = 1; i < count; i++) {
        unsigned long long at;
        printf("%d ", take((uintptr_t)&at, strtoull(words[i], NULL, 10), 0));
    }
    return 0;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    if (strcmp(words[1], "-") == 0) return run(count - 2, words + 2);
    void *library = dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND);
    int (*inside)(int, char **) = library ? (int (*)(int, char **))dlsym(library, "run") : NULL;
    if (!inside) fprintf(stderr, "%s\n", dlerror());
    return inside ? inside(count - 2, words + 2) : 2;
}
