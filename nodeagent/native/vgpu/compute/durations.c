/* See durations.h. */
#define _GNU_SOURCE
#include "compute/durations.h"

#include <time.h>

#include "compute/bucket.h"
#include "ledger/lock.h"

#define KNOWN 4096u /* functions and graphs; a power of two */
#define PLACES 64u  /* of them that one may have */
#define FIRST 4u    /* launches that are looked at without exception */
#define UNPAID 1u   /* of them that may go before the first is through */
#define EVERY 32u
#define WEIGHT 4       /* one in so many is the newest */
#define LOOK_NS 50000L /* the first pause between two looks; each is twice as long as the one before */
#define LONGEST_NS 5000000L
#define PATIENCE_NS 10000000000L

struct duration {
    _Atomic uint64_t launched; /* and where */
    _Atomic uint64_t average_ns;
    _Atomic uint32_t launches;
};

static struct duration known[KNOWN];
static struct lock changing; /* of what is pending; who finds it taken goes on without */
static struct sample pending[DURATIONS_PENDING];
static atomic_uint pending_count;

/* Nobody says when a function or graph is gone, so that all places may be those of what is no more: each in its turn. */
static struct duration *replace(size_t at, uint64_t launched) {
    static atomic_uint turn;
    struct duration *one = &known[(at + atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % PLACES) % KNOWN];
    atomic_store(&one->average_ns, 0);
    atomic_store(&one->launches, 0);
    atomic_store(&one->launched, launched);
    return one;
}

/* The same function may take another time on another device, and one of them may wait for the other. */
struct duration *durations_find(const void *function, unsigned slot) {
    uint64_t launched = (uint64_t)(uintptr_t)function << 4 | slot;
    size_t at = (size_t)(launched * UINT64_C(0x9e3779b97f4a7c15) >> 40);
    for (size_t tries = 0; tries < PLACES; tries++) {
        struct duration *one = &known[(at + tries) % KNOWN];
        uint64_t owner = atomic_load_explicit(&one->launched, memory_order_acquire);
        if (!owner && atomic_compare_exchange_strong(&one->launched, &owner, launched)) return one;
        if (owner == launched) return one;
    }
    return replace(at, launched);
}

uint64_t durations_average(const struct duration *duration) {
    return atomic_load_explicit(&duration->average_ns, memory_order_relaxed);
}

/* Another stream of this thread may be captured: what is done here is no part of it. */
static int exchange_mode(int mode) {
    DRIVER_CALL(cuThreadExchangeStreamCaptureMode, &mode);
    return mode;
}

static CUresult record(CUevent event, CUstream stream, bool per_thread) {
    return per_thread ? DRIVER_CALL(cuEventRecord_ptsz, event, stream) : DRIVER_CALL(cuEventRecord, event, stream);
}

static void drop(const struct sample *sample) {
    DRIVER_CALL(cuEventDestroy_v2, sample->first);
    DRIVER_CALL(cuEventDestroy_v2, sample->last);
}

bool durations_begin(struct sample *sample, struct duration *duration, CUstream stream, bool per_thread) {
    uint32_t launches = atomic_fetch_add_explicit(&duration->launches, 1, memory_order_relaxed);
    if ((launches >= FIRST && launches % EVERY && durations_average(duration) > 0) ||
        atomic_load(&pending_count) >= DURATIONS_PENDING)
        return false;
    int mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    bool made = false;
    *sample = (struct sample){.duration = duration};
    DRIVER_CALL(cuCtxGetCurrent, &sample->context);
    if (DRIVER_CALL(cuEventCreate, &sample->first, 0) == CUDA_SUCCESS) {
        if (DRIVER_CALL(cuEventCreate, &sample->last, 0) == CUDA_SUCCESS)
            made = record(sample->first, stream, per_thread) == CUDA_SUCCESS;
        if (!made) drop(sample);
    }
    exchange_mode(mode);
    return made;
}

/* False where there are too many. */
static bool keep(const struct sample *sample) {
    lock_take(&changing);
    unsigned count = atomic_load(&pending_count);
    bool kept = count < DURATIONS_PENDING;
    if (kept) {
        pending[count] = *sample;
        atomic_store(&pending_count, count + 1);
    }
    lock_give(&changing);
    return kept;
}

void durations_end(const struct sample *sample, CUstream stream, bool per_thread, bool launched) {
    int mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    if (!launched || record(sample->last, stream, per_thread) != CUDA_SUCCESS || !keep(sample)) drop(sample);
    exchange_mode(mode);
}

static void learn(const struct sample *sample) {
    float milliseconds = 0;
    if (DRIVER_CALL(cuEventElapsedTime, &milliseconds, sample->first, sample->last) != CUDA_SUCCESS || milliseconds < 0)
        return;
    uint64_t took = (uint64_t)((double)milliseconds * 1e6), before = durations_average(sample->duration);
    uint64_t after = before ? before - before / WEIGHT + took / WEIGHT : took;
    atomic_store_explicit(&sample->duration->average_ns, after ? after : 1, memory_order_relaxed);
    if (bucket_is_limited(sample->slot)) bucket_correct(sample->slot, sample->paid_ns, took);
}

void durations_look(void) {
    if (atomic_load_explicit(&pending_count, memory_order_relaxed) == 0 || !lock_try(&changing)) return;
    int mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    unsigned count = atomic_load(&pending_count), left = 0;
    for (unsigned i = 0; i < count; i++) {
        CUresult result = DRIVER_CALL(cuEventQuery, pending[i].last);
        if (result == CUDA_ERROR_NOT_READY) {
            pending[left++] = pending[i];
            continue;
        }
        if (result == CUDA_SUCCESS) learn(&pending[i]);
        drop(&pending[i]);
    }
    atomic_store(&pending_count, left);
    exchange_mode(mode);
    lock_give(&changing);
}

static bool is_watched_enough(const struct duration *duration) {
    lock_take(&changing);
    unsigned count = atomic_load(&pending_count), own = 0;
    for (unsigned i = 0; i < count; i++) own += pending[i].duration == duration;
    lock_give(&changing);
    return own >= UNPAID || count >= DURATIONS_PENDING;
}

void durations_wait(const struct duration *duration) {
    long waited = 0;
    for (long pause = LOOK_NS;
         durations_average(duration) == 0 && waited < PATIENCE_NS && is_watched_enough(duration);) {
        nanosleep(&(struct timespec){0, pause}, NULL);
        waited += pause;
        pause = pause * 2 < LONGEST_NS ? pause * 2 : LONGEST_NS;
        durations_look();
    }
}

void durations_take_of(struct sample_list *list, CUcontext context) {
    list->count = 0;
    lock_take(&changing);
    unsigned count = atomic_load(&pending_count), left = 0;
    for (unsigned i = 0; i < count; i++)
        if (context && pending[i].context == context) list->samples[list->count++] = pending[i];
        else pending[left++] = pending[i];
    atomic_store(&pending_count, left);
    lock_give(&changing);
}

void durations_put_back(const struct sample_list *list) {
    for (unsigned i = 0; i < list->count; i++)
        if (!keep(&list->samples[i])) drop(&list->samples[i]);
}

void durations_after_fork(void) {
    atomic_store(&pending_count, 0);
    atomic_store(&changing.held, 0);
}
