/*
 * How long each function and graph takes on the device, as a moving average: some of its launches are put between two events
 * of the driver, and looked at when they are done. Nobody waits for that but who launches further ahead what has never been through.
 */
#ifndef VGPU_DURATIONS_H
#define VGPU_DURATIONS_H

#include <stdbool.h>

#include "front/driver.h"

struct duration;

/* Of a function or graph on a device. Where there are too many, another one is forgotten for it. */
struct duration *durations_find(const void *launched, unsigned slot);

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

/*
 * Wait for the first sample of what nobody knows anything of, where as many launches of it are watched as may go unpaid: a
 * driver takes a thousand launches before the first is through. What waits for another launch may be waited for in vain, so
 * there is an end to it.
 */
void durations_wait(const struct duration *duration);

/* Whether this launch of it is to be looked at; then the launch, then its end. One that failed says nothing. */
bool durations_begin(struct sample *sample, struct duration *duration, CUstream stream, bool per_thread);
void durations_end(const struct sample *sample, CUstream stream, bool per_thread, bool launched);

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
