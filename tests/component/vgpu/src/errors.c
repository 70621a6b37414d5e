/*
 * What a careful program hears from dlerror: for each word a function of the driver's, whether it is there, and whether there
 * was an error.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (int i = 1; driver && i < count; i++) {
        dlerror();
        void *place = dlsym(driver, words[i]);
        const char *error = dlerror();
        printf("%d%d ", place != NULL, error != NULL);
    }
    return driver ? 0 : 2;
}
