/*
 * errors LIBRARY NAME...: what a careful program hears from dlerror: for each name whether it is there, and whether there was
 * an error.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    void *driver = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    for (int i = 2; driver && i < count; i++) {
        dlerror();
        void *place = dlsym(driver, words[i]);
        const char *error = dlerror();
        printf("%d%d ", place != NULL, error != NULL);
    }
    return driver ? 0 : 2;
}
