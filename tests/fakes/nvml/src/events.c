/* Event sets: each remembers what it registered and how far it has read the one ring that the tests fill. */
#define _GNU_SOURCE
#include "fake.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct event_set {
    uint64_t wanted[GPUS_MAX];
    uint64_t cursor;
};

EXPORT result nvmlEventSetCreate(struct event_set **set) {
    BEGIN(NEED_INIT, NULL);
    *set = calloc(1, sizeof(**set));
    REQUIRE(*set, NVML_ERROR_MEMORY);
    (*set)->cursor = __atomic_load_n(&fake->event_head, __ATOMIC_ACQUIRE);
    return 0;
}

EXPORT result nvmlEventSetFree(struct event_set *set) {
    BEGIN(NEED_INIT, NULL);
    free(set);
    return 0;
}

EXPORT result nvmlDeviceRegisterEvents(void *device, uint64_t types, struct event_set *set) {
    BEGIN(NEED_WHOLE, device);
    REQUIRE(set && types, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE((types & ~on.gpu->events_supported) == 0, NVML_ERROR_NOT_SUPPORTED);
    set->wanted[on.index] |= types;
    return 0;
}

/* The next event this set has registered for; 1 when there was one. */
static int take(struct event_set *set, struct fake_Event *event) {
    uint64_t head = __atomic_load_n(&fake->event_head, __ATOMIC_ACQUIRE);
    while (set->cursor < head) {
        *event = fake->events[set->cursor++ % EVENTS_MAX];
        if (event->wait_code) return 1;
        if (event->gpu < GPUS_MAX && (set->wanted[event->gpu] & event->type)) return 1;
    }
    return 0;
}

static uint64_t now_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sleeps until the tests push an event, as the real library sleeps until the kernel has one: it costs nothing meanwhile. */
static void sleep_until_pushed(uint64_t head, uint64_t nanoseconds) {
    struct timespec left = {(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)};
    syscall(SYS_futex, &fake->event_head, FUTEX_WAIT, (uint32_t)head, &left, NULL, 0);
}

static result wait(struct event_set *set, struct nvmlEventData_t *data, uint32_t timeout_milliseconds) {
    uint64_t end = now_nanoseconds() + (uint64_t)timeout_milliseconds * 1000000u;
    struct fake_Event event;
    REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
    for (;;) {
        uint64_t head = __atomic_load_n(&fake->event_head, __ATOMIC_ACQUIRE), now = now_nanoseconds();
        if (take(set, &event)) break;
        if (now >= end) return NVML_ERROR_TIMEOUT;
        sleep_until_pushed(head, end - now);
    }
    if (event.wait_code) return event.wait_code;
    *data = (struct nvmlEventData_t){fake_handle(event.gpu, -1), event.type, event.data, event.gpu_instance,
                                     event.compute_instance};
    return 0;
}

EXPORT result nvmlEventSetWait_v2(struct event_set *set, struct nvmlEventData_t *data, uint32_t timeout_milliseconds) {
    BEGIN(NEED_INIT, NULL);
    return wait(set, data, timeout_milliseconds);
}
