/* What a CUDA program does first: load the driver's library by its SONAME; then say what else the container has. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("library: %s\n", dlerror());
        return 1;
    }
    int (*ask)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion"), version = 0;
    ask(&version);
    printf("version: %d\n", version);
    DIR *dev = opendir("/dev");
    for (struct dirent *entry; (entry = readdir(dev));)
        if (!strncmp(entry->d_name, "nvidia", 6)) printf("node: %s\n", entry->d_name);
    printf("visible: %s\n", getenv("NVIDIA_VISIBLE_DEVICES"));
    printf("opened: %s\n", fopen("/dev/nvidia0", "r") ? "yes" : "no");
    return 0;
}
