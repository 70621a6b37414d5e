/* update-application-profile: which GPUs there are for EGL. */
#include "hook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PROFILE[] = "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";

static void take_gpu(const char *name, void *into) {
    static const char stem[] = "nvidia";
    if (strncmp(name, stem, sizeof stem - 1)) return;
    const char *digits = name + sizeof stem - 1;
    size_t count = strspn(digits, "0123456789");
    unsigned long number = strtoul(digits, NULL, 10);
    if (count && !digits[count] && number < 64) *(unsigned long long *)into |= 1ULL << number;
}

/* EGL would otherwise look for every GPU of the host, and fail on those that this container was not given. */
void update_profile(int root) {
    char text[256];
    unsigned long long gpus = 0;
    each_name(root, "dev", take_gpu, &gpus);
    if (!gpus) return;
    snprintf(text, sizeof text,
             "{\"profiles\": [{\"name\": \"_container_\", \"settings\": [\"EGLVisibleDGPUDevices\", 0x%llx]}],"
             " \"rules\": [{\"pattern\": [], \"profile\": \"_container_\"}]}\n",
             gpus);
    if (write_inside(root, PROFILE, text, 0444)) pass_over(PROFILE);
}
