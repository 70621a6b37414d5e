/* runtime_start LIBRARY: starts NVIDIA's runtime as programs do, and prints what it says of the driver. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    void *runtime = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
    int devices = -1;
    void *memory = NULL;
    if (!runtime) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int (*get_count)(int *) = (int (*)(int *))dlsym(runtime, "cudaGetDeviceCount");
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(runtime, "cudaMalloc");
    int (*get_version)(int *) = (int (*)(int *))dlsym(runtime, "cudaDriverGetVersion");
    int version = 0;
    printf("%d ", get_version(&version));
    printf("%d ", version);
    printf("%d %d ", get_count(&devices), devices);
    printf("%d\n", allocate(&memory, 4096));
    return 0;
}
