/*
 * Where functions of the C library are, by its symbol table: `right` where the loader says the same, `nowhere`,
 * or the library that it was wrongly found in. Words are the names; the loader is asked by the C library's own dlsym.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "front/real.h"

typedef void *(*find)(void *, const char *);

int main(int count, char **words) {
    find ask = (find)real_find("dlsym");
    void *library = ask ? dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!library) return 2;
    for (int i = 1; i < count; i++) {
        void *place = real_find(words[i]);
        Dl_info info;
        if (!place) puts("nowhere");
        else if (place == ask(library, words[i])) puts("right");
        else puts(dladdr(place, &info) ? info.dli_fname : "wrong");
    }
    return 0;
}
