/*
 * deep FILE: opens this same source as a library, which looks into its own files first, and prints whose function it finds
 * under a name that both have.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#define SHOWN __attribute__((visibility("default")))

#ifdef INSIDE

SHOWN const char *whose(void) {
    return "own";
}

SHOWN const char *ask(void) {
#ifdef REFERS
    if (!dlopen(REFERS, RTLD_NOW | RTLD_NOLOAD)) dlerror();
#endif
    return whose();
}

#else

SHOWN const char *whose(void) {
    return "program's";
}

int main(int count, char **words) {
    void *library = count == 2 ? dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
    const char *(*ask)(void) = library ? (const char *(*)(void))dlsym(library, "ask") : NULL;
    printf("%s\n", ask ? ask() : dlerror());
    return ask ? 0 : 2;
}

#endif
