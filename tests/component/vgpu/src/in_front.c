/* A library of the same kind that stands before everything, and knows nothing. */
#include <stddef.h>

void *dlsym(void *handle, const char *name) {
    (void)handle, (void)name;
    return NULL;
}

void *dlvsym(void *handle, const char *name, const char *version) {
    (void)handle, (void)name, (void)version;
    return NULL;
}
