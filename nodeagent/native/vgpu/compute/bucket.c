/* See bucket.h. */
#define _GNU_SOURCE
#include "compute/bucket.h"

#include <time.h>

#include "compute/control.h"
#include "ledger/files.h"
#include "shared/account.h"

#define BURST_NS UINT64_C(20000000)        /* that much may be made up for after a pause */
#define SLEEP_NS UINT64_C(10000000)        /* then the limit is looked at again */
#define FURTHEST_NS UINT64_C(600000000000) /* nobody waits longer, whatever the file says */

#define AHEAD_NS                                                                                              \
    2000000 /* paid for at once where containers share a claim: what is theirs together costs system calls */

/* What this process has paid ahead for, on each device. */
static _Atomic int64_t ahead[VGPU_DEVICES];

static uint64_t now_ns(void) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

bool bucket_is_limited(unsigned slot) {
    return slot < VGPU_DEVICES && files_usage() && files_core_limit(slot) > 0;
}

/* Enough has been seen: the means decide what the limit is multiplied by from here on. */
static uint32_t conclude(struct vgpu_bucket *bucket, unsigned slot, uint32_t factor, uint64_t gathered, uint64_t span) {
    uint64_t waited = atomic_load(&bucket->waited_ns);
    struct control_input input = {files_core_limit(slot),       control_mean_own(gathered),
                                  control_mean_total(gathered), waited != atomic_load(&bucket->seen_waited_ns),
                                  files_is_soft(slot),          span >= CONTROL_SURE_NS};
    atomic_store(&bucket->seen_waited_ns, waited);
    return input.limit ? control_next(factor, input) : factor;
}

/* What the limit is multiplied by; whoever first sees a new measurement reckons with it, for all. */
static uint32_t find_factor(struct vgpu_bucket *bucket, unsigned slot, uint64_t now) {
    uint64_t measured = files_measured(slot), control = atomic_load(&bucket->control);
    uint32_t factor = (uint32_t)control ? (uint32_t)control : CONTROL_ONE;
    uint64_t number = measured >> 32 << 32;
    if (number == control >> 32 << 32 || !atomic_compare_exchange_strong(&bucket->control, &control, number | factor))
        return factor;
    uint64_t gathered = control_gather(atomic_load(&bucket->gathered), (uint32_t)(measured & 0xffff),
                                       (uint32_t)(measured >> 16 & 0xffff));
    uint64_t since = atomic_load(&bucket->since_ns), longest = atomic_load(&bucket->longest_ns);
    if (since == 0 || since > now) atomic_store(&bucket->since_ns, now);
    else if (now - since >= CONTROL_LAUNCHES * longest) {
        uint32_t next = conclude(bucket, slot, factor, gathered, now - since);
        control = number | factor;
        if (atomic_compare_exchange_strong(&bucket->control, &control, number | next)) factor = next;
        atomic_store(&bucket->since_ns, now);
        gathered = 0;
    }
    atomic_store(&bucket->gathered, gathered);
    return factor;
}

/* A long launch in a small part is paid for until as far ahead as anybody waits, and no further. */
static uint64_t bound(uint64_t due, uint64_t now) {
    return due > now + FURTHEST_NS ? now + FURTHEST_NS : due;
}

/* Nobody has paid so far ahead, also by a clock that was read a moment later: somebody else wrote that. */
static bool is_nonsense(uint64_t due, uint64_t now) {
    return due > now + 2 * FURTHEST_NS;
}

/* From when on the next launch may go. */
static uint64_t find_start(uint64_t due, uint64_t now) {
    return due + BURST_NS < now || is_nonsense(due, now) ? now - BURST_NS : bound(due, now);
}

static uint64_t after_taking(uint64_t due, uint64_t charge, uint64_t now) {
    return bound(find_start(due, now) + charge, now);
}

static uint64_t after_adding(uint64_t due, uint64_t charge, uint64_t now) {
    return is_nonsense(due, now) ? due : bound(due + charge, now);
}

static uint64_t after_giving_back(uint64_t due, uint64_t charge, uint64_t now) {
    (void)now;
    return due > charge ? due - charge : 0;
}

/* What the processes of the container have paid so far. */
static inline uint64_t change_own(struct vgpu_bucket *bucket, due_change *change, uint64_t charge, uint64_t now) {
    uint64_t due = atomic_load(&bucket->due_ns);
    while (!atomic_compare_exchange_weak(&bucket->due_ns, &due, change(due, charge, now)));
    return due;
}

/* And those of all containers of its claim; where that cannot be had, each container counts for itself. */
static uint64_t change_shared(unsigned slot, due_change *change, uint64_t charge, uint64_t now) {
    uint64_t due;
    if (shared_change_due(slot, change, charge, now, &due)) return due;
    return change_own(&files_usage()->buckets[slot], change, charge, now);
}

/* What a launch has cost more than was paid is paid with the next one; of what it has cost less, little is kept. */
static void correct_ahead(unsigned slot, int64_t more, uint64_t now) {
    int64_t left = atomic_fetch_sub(&ahead[slot], more) - more;
    if (left > AHEAD_NS) {
        atomic_fetch_sub(&ahead[slot], left - AHEAD_NS);
        change_shared(slot, after_giving_back, (uint64_t)(left - AHEAD_NS), now);
    }
}

static uint64_t bound_charge(uint64_t charge) {
    return charge < FURTHEST_NS ? charge : FURTHEST_NS;
}

/* When this may go, where containers share a claim. */
static uint64_t take_shared(unsigned slot, uint64_t charge, uint64_t now) {
    charge = bound_charge(charge);
    int64_t left = atomic_fetch_sub(&ahead[slot], (int64_t)charge) - (int64_t)charge;
    if (left >= 0) return 0;
    charge = (uint64_t)-left + AHEAD_NS;
    atomic_fetch_add(&ahead[slot], (int64_t)charge);
    return find_start(change_shared(slot, after_taking, charge, now), now);
}

static uint64_t take(struct vgpu_bucket *bucket, uint64_t charge, uint64_t now) {
    return find_start(change_own(bucket, after_taking, charge, now), now);
}

void bucket_pay(unsigned slot, uint64_t cost_ns) {
    struct vgpu_bucket *bucket = &files_usage()->buckets[slot];
    uint64_t start = now_ns(), now = start;
    uint32_t limit = files_core_limit(slot);
    if (limit == 0) return;
    uint64_t charge = control_charge(cost_ns, limit, find_factor(bucket, slot, now));
    uint64_t longest = atomic_load_explicit(&bucket->longest_ns, memory_order_relaxed), later = longest - longest / 16;
    if (charge > longest || charge < later)
        atomic_store_explicit(&bucket->longest_ns, charge > later ? charge : later, memory_order_relaxed);
    uint64_t from = files_is_shared() ? take_shared(slot, charge, now) : take(bucket, charge, now);
    /* Who waits for long sees a new limit: what is left of the wait was reckoned by the old one. */
    while (now < from && files_look() == VGPU_LIMITING && files_core_limit(slot) == limit) {
        uint64_t rest = from - now < SLEEP_NS ? from - now : SLEEP_NS;
        nanosleep(&(struct timespec){0, (long)rest}, NULL);
        now = now_ns();
    }
    if (now > start) atomic_fetch_add_explicit(&bucket->waited_ns, now - start, memory_order_relaxed);
}

void bucket_correct(unsigned slot, uint64_t paid_ns, uint64_t cost_ns) {
    struct vgpu_bucket *bucket = &files_usage()->buckets[slot];
    uint32_t limit = files_core_limit(slot);
    if (limit == 0) return;
    uint64_t now = now_ns();
    uint32_t factor = find_factor(bucket, slot, now);
    bool is_more = cost_ns > paid_ns;
    uint64_t charge = control_charge(is_more ? cost_ns - paid_ns : paid_ns - cost_ns, limit, factor);
    if (files_is_shared())
        correct_ahead(slot, is_more ? (int64_t)bound_charge(charge) : -(int64_t)bound_charge(charge), now);
    else change_own(bucket, is_more ? after_adding : after_giving_back, charge, now);
}

void bucket_after_fork(void) {
    for (unsigned slot = 0; slot < VGPU_DEVICES; slot++) atomic_store(&ahead[slot], 0);
}
