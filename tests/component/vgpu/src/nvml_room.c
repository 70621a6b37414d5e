/* Asks NVML for the processes of the first device, with no room, too little, and enough: first and third layout. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*any)(void *, unsigned *, void *);

int main(void) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    const char *const names[] = {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v3"};
    const size_t sizes[] = {16, 24};
    if (!nvml || ((int (*)(void))dlsym(nvml, "nvmlInit_v2"))() ||
        ((int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device))
        return 2;
    for (int i = 0; i < 2; i++)
        for (unsigned room = 0; room < 3; room++) {
            unsigned char infos[256];
            unsigned count = room, pid;
            unsigned long long used;
            any ask = (any)dlsym(nvml, names[i]);
            if (!ask) return 3;
            int code = ask(device, &count, room ? infos : NULL);
            printf("%d %u", code, count);
            for (unsigned k = 0; code == 0 && k < count; k++) {
                memcpy(&pid, infos + k * sizes[i], sizeof pid);
                memcpy(&used, infos + k * sizes[i] + 8, sizeof used);
                printf(" %u:%llu", pid, used);
            }
            printf("\n");
        }
    return 0;
}
