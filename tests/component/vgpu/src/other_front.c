/*
 * A library of the same kind, of somebody else: it owns dlsym, finds the real one by its version as such libraries do, and
 * stands before cuMemAlloc_v2. Says on the standard error each call that came by.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef void *(*find)(void *, const char *);
typedef int (*allocate)(unsigned long long *, size_t);

static allocate original;

static find find_real(void) {
    find real = (find)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real ? real : (find)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
}

int cuMemAlloc_v2(unsigned long long *at, size_t bytes) {
    write(STDERR_FILENO, "seen\n", 5) < 0 ? (void)0 : (void)0;
    if (!original) original = (allocate)find_real()(RTLD_NEXT, "cuMemAlloc_v2");
    return original(at, bytes);
}

void *dlsym(void *handle, const char *name) {
    void *found = find_real()(handle, name);
    if (found && strcmp(name, "cuMemAlloc_v2") == 0) {
        if (!original) original = (allocate)found;
        return (void *)cuMemAlloc_v2;
    }
    return found;
}
