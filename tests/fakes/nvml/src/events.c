/* Event sets: each remembers what it registered and how far it has read the one ring that the tests fill. */
#include "fake.h"

#include <stdlib.h>
#include <time.h>

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

static result wait(struct event_set *set, struct nvmlEventData_t *data, uint32_t timeout_milliseconds) {
  uint64_t end = now_nanoseconds() + (uint64_t)timeout_milliseconds * 1000000u;
  struct fake_Event event;
  REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
  while (!take(set, &event)) {
    if (now_nanoseconds() >= end) return NVML_ERROR_TIMEOUT;
    fake_sleep(2000000);
  }
  if (event.wait_code) return event.wait_code;
  *data = (struct nvmlEventData_t){fake_handle(event.gpu, -1), event.type, event.data, event.gpu_instance, event.compute_instance};
  return 0;
}

EXPORT result nvmlEventSetWait_v2(struct event_set *set, struct nvmlEventData_t *data, uint32_t timeout_milliseconds) {
  BEGIN(NEED_INIT, NULL);
  return wait(set, data, timeout_milliseconds);
}
