/* Finds what it has, does not find what is not there, and says so: with and without a library in front. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    void *self = dlopen(NULL, RTLD_NOW);
    int has_printf = dlsym(RTLD_DEFAULT, "printf") != NULL, has_main = self != NULL && dlsym(self, "puts") != NULL;
    printf("found %d %d %d\n", has_printf, has_main, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
    return 0;
}
