/*
 * As much of NVML as says what the fake CUDA driver has given out, by that driver's account: names, layouts and codes are those
 * of nvml.h. A process is in the list while it has memory, as one with a context.
 *
 * NVML_UUID is how the UUID of the only device begins. NVML_STRANGER is a process that comes between two looks, by its bytes;
 * with NVML_NO_LISTS there is no list, as nvml.h allows for it.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICES 16
#define PROCESSES 128
#define TOTAL (UINT64_C(64) << 30)

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

/* tests/fakes/cuda/src/account.c */
struct account {
    uint64_t most[DEVICES];
    struct {
        uint64_t pid, start, used[DEVICES], busy_ns;
    } processes[PROCESSES];
};
struct memory {
    unsigned long long total, free, used;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static int starts, looks;

static const struct account *open_account(void) {
    int file = open(getenv("FAKE_CUDA_ACCOUNT"), O_RDONLY | O_CLOEXEC);
    void *account = mmap(NULL, sizeof(struct account), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return account;
}

static uint64_t find_stranger(void) {
    const char *bytes = getenv("NVML_STRANGER");
    return bytes && looks > 1 ? strtoull(bytes, NULL, 10) : 0;
}

int nvmlInit_v2(void) {
    starts++;
    return SUCCESS;
}

int nvmlShutdown(void) {
    if (starts == 0) return UNINITIALIZED;
    starts--;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    const char *kind = getenv("NVML_UUID");
    if (starts == 0) return UNINITIALIZED;
    *device = &starts;
    return strncmp(uuid, kind ? kind : "GPU-", 4) == 0 && strlen(uuid) == 40 ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    const struct account *account = open_account();
    if (device != &starts || starts == 0) return INVALID_ARGUMENT;
    looks++;
    *memory = (struct memory){TOTAL, 0, find_stranger()};
    for (int i = 0; i < PROCESSES; i++) memory->used += account->processes[i].used[0];
    memory->free = TOTAL - memory->used;
    munmap((void *)account, sizeof *account);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    const struct account *account = open_account();
    unsigned found = 0;
    if (device != &starts || getenv("NVML_NO_LISTS")) return NOT_SUPPORTED;
    if (find_stranger()) processes[found++] = (struct process){1, find_stranger(), UINT32_MAX, UINT32_MAX};
    for (int i = 0; i < PROCESSES; i++)
        if (account->processes[i].used[0] > 0) {
            if (found == *count) return INSUFFICIENT_SIZE;
            /* As host pids are to a process in a namespace of its own. */
            processes[found++] = (struct process){(unsigned)account->processes[i].pid + 4000000,
                                                  account->processes[i].used[0], UINT32_MAX, UINT32_MAX};
        }
    munmap((void *)account, sizeof *account);
    *count = found;
    return SUCCESS;
}
