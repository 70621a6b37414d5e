/*
 * How long each function and graph takes on the device, as a moving average: some of its launches are put between two events
 * of the driver, and looked at when they are done. Nobody waits for that.
 */
#ifndef VGPU_DURATIONS_H
#define VGPU_DURATIONS_H

#include <stdbool.h>

#include "front/driver.h"

struct duration;

/* Of a function or graph. Where there are too many, another one is forgotten for it. */
struct duration *durations_find(const void *launched);

/* 0 where nothing is known yet. */
uint64_t durations_average(const struct duration *duration);

#define DURATIONS_PENDING 32u

/* A launch that is looked at. */
struct sample {
    struct duration *duration;
    CUcontext context; /* whose the events are */
    CUevent first, last;
    unsigned slot;
    uint64_t paid_ns;
};

/* Whether this launch of it is to be looked at; then the launch, then its end. */
bool durations_begin(struct sample *sample, struct duration *duration, CUstream stream, bool per_thread);
void durations_end(const struct sample *sample, CUstream stream, bool per_thread);

/* Take note of what is done: called before launches. What was not paid for is paid for now. */
void durations_look(void);

/* Those of a context that may be about to end, and its events with it: nobody asks for them until they are put back. */
struct sample_list {
    struct sample samples[DURATIONS_PENDING];
    unsigned count;
};
void durations_take_of(struct sample_list *list, CUcontext context);
void durations_put_back(const struct sample_list *list);

/* In the child of a fork. */
void durations_after_fork(void);

#endif
