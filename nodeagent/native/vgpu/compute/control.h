/*
 * The law of the compute limit, and nothing else: what the limit is multiplied by, after each measurement. Cost is estimated
 * in time; what the estimate gets wrong, on any device, shows in what was measured, so no size of a device is in it.
 */
#ifndef VGPU_CONTROL_H
#define VGPU_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#define CONTROL_ONE 65536u
#define CONTROL_LEAST (CONTROL_ONE / 16)
#define CONTROL_WHOLE 10000u                 /* of a device, as measured */
#define CONTROL_STILL 100u                   /* so near it is left alone */
#define CONTROL_BUSY 9500u                   /* from here on nothing of a device is idle */
#define CONTROL_LAUNCHES 2u                  /* so many of the longest are to be seen before anything is concluded */
#define CONTROL_SURE_NS UINT64_C(1000000000) /* against which it counts little that measurements come late */

struct control_input {
    uint32_t limit;  /* in percent, 1 to 100 */
    uint32_t own;    /* how busy the container had the device, in 1/10000 */
    uint32_t total;  /* and all */
    uint32_t waited; /* whether a launch had to wait: who has no more to do is not lifted */
    uint32_t soft;   /* whether what others leave idle may be used */
    uint32_t sure;   /* whether so long was looked at that what was measured is of what was decided last */
};

/* Three times what lets it use all of the device: estimates that are too high are made up for. */
static inline uint32_t control_most(uint32_t limit) {
    return CONTROL_ONE * 3 * 100 / limit;
}

/*
 * Who is sure takes half of the way to what is wanted. Else additive increase, multiplicative decrease: a quarter of what is
 * amiss with each measurement, since they come late.
 */
static inline uint32_t control_next(uint32_t factor, struct control_input input) {
    uint32_t wanted = input.limit * (CONTROL_WHOLE / 100), most = control_most(input.limit);
    uint64_t next = factor;
    bool is_alone = input.total <= input.own + CONTROL_STILL;
    if (input.soft && (input.total < CONTROL_BUSY || is_alone)) {
        if (input.waited) next += factor / 8 + CONTROL_ONE / 16;
    } else if (input.own > wanted + CONTROL_STILL)
        next -= (uint64_t)factor * (input.own - wanted) / input.own / (input.sure ? 2 : 4);
    else if (input.own + CONTROL_STILL < wanted && input.waited) {
        if (input.sure && (uint64_t)input.own * 3 > wanted)
            next += (uint64_t)factor * (wanted - input.own) / input.own / 2;
        else if (input.sure) next += factor;
        else next += (uint64_t)CONTROL_ONE * (wanted - input.own) / wanted / 4;
    }
    return next < CONTROL_LEAST ? CONTROL_LEAST : next > most ? most : (uint32_t)next;
}

/* What was measured so far, and now, put together; as in vgpu_bucket.gathered. */
static inline uint64_t control_gather(uint64_t gathered, uint32_t own, uint32_t total) {
    uint64_t sums = gathered + own + ((uint64_t)total << 24) + (UINT64_C(1) << 48);
    return gathered >> 48 < 1000 ? sums : gathered; /* no more than the sums can hold */
}

static inline uint32_t control_mean_own(uint64_t gathered) {
    return gathered >> 48 ? (uint32_t)((gathered & 0xffffff) / (gathered >> 48)) : 0;
}

static inline uint32_t control_mean_total(uint64_t gathered) {
    return gathered >> 48 ? (uint32_t)((gathered >> 24 & 0xffffff) / (gathered >> 48)) : 0;
}

/* For how long a launch of this cost takes up the container's part. */
static inline uint64_t control_charge(uint64_t cost_ns, uint32_t limit, uint32_t factor) {
    return (uint64_t)((double)cost_ns * 100.0 * CONTROL_ONE / ((double)limit * factor));
}

#endif
