/* See ledger.h. */
#define _GNU_SOURCE
#include "ledger/ledger.h"

#include <time.h>
#include <unistd.h>

#include "ledger/files.h"
#include "ledger/identity.h"
#include "ledger/lock.h"
#include "ledger/log.h"
#include "ledger/presence.h"
#include "shared/account.h"

#define CONTEST_TRIES 400
#define CONTEST_WAIT_NS 100000
#define LOOK_EVERY_NS UINT64_C(10000000) /* for the dead, where only a question is asked */
#define PRESENCE_TRIES 50

static struct lock attaching; /* whoever looks for a slot of this process, or takes one back */
static _Atomic(struct vgpu_process *) own_slot;

struct sums {
    uint64_t decided;
    uint64_t all;
};

static uint64_t add(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* A reservation moves from pending to used, so it is looked for in this order: seen twice at worst, never missed. */
static struct sums add_up(struct vgpu_usage *usage, unsigned slot) {
    struct sums sums = {0, 0};
    uint32_t count = atomic_load(&usage->header.high_water);
    for (uint32_t i = 0; i < count && i < VGPU_PROCESSES; i++) {
        struct vgpu_share *share = &usage->slots[i].shares[slot];
        uint64_t pending = atomic_load(&share->pending);
        uint64_t used = atomic_load(&share->used);
        sums.decided = add(sums.decided, used);
        sums.all = add(sums.all, add(used, pending));
    }
    return sums;
}

static void clear_shares(struct vgpu_process *process) {
    for (unsigned i = 0; i < VGPU_DEVICES; i++) {
        atomic_store(&process->shares[i].pending, 0);
        atomic_store(&process->shares[i].used, 0);
        atomic_store(&process->shares[i].refusals, 0);
    }
}

/* Whether this owner of a slot shows by a lock that it lives. Who takes one back holds the lock until it is free. */
static bool is_locked(struct vgpu_process *process, uint64_t owner) {
    uint64_t locked_by = atomic_load(&process->locked_by);
    return locked_by && (locked_by == owner || (owner & VGPU_OWNER_STATE) == VGPU_OWNER_RECLAIMED);
}

/*
 * Whether the process of a slot has ended, as far as that can be told without its lock. Of another pid namespace nothing
 * can: a container that is started again is in a new one, and so is each container that shares a claim.
 */
static bool may_have_ended(struct vgpu_process *process, uint64_t owner) {
    uint64_t identity = owner & ~VGPU_OWNER_STATE;
    uint64_t namespace = identity_namespace();
    if (namespace && atomic_load(&process->pid_namespace) == namespace) {
        if (!identity_is_alive(identity)) return true;
        /* Without its start the pid may be another process's by now. */
        if (identity & VGPU_OWNER_START_MASK) return false;
    }
    return is_locked(process, owner);
}

/* Take a slot back from a process that has ended. Whoever is killed in the middle of that leaves it to the next. */
static bool reclaim(struct vgpu_usage *usage, unsigned slot, uint64_t owner) {
    struct vgpu_process *process = &usage->slots[slot];
    bool has_lock = is_locked(process, owner);
    int lock = has_lock ? presence_try(slot) : -1;
    if (has_lock && lock < 0) return false;
    bool is_ours = atomic_compare_exchange_strong(&process->owner, &owner, VGPU_OWNER_RECLAIMED | identity_own());
    if (is_ours) {
        clear_shares(process);
        atomic_store(&process->pid_namespace, 0);
        atomic_store(&process->locked_by, 0);
        atomic_store(&process->owner, 0);
        log_line("took back what process %u had", (unsigned)(owner >> VGPU_OWNER_PID_SHIFT & VGPU_OWNER_PID_MASK));
    }
    if (lock >= 0) close(lock);
    return is_ours;
}

/* Give back what the dead have; with the lock of those who look for a slot. */
static bool sweep_attaching(struct vgpu_usage *usage) {
    struct vgpu_process *own = atomic_load(&own_slot);
    bool freed = false;
    uint32_t count = atomic_load(&usage->header.high_water);
    for (uint32_t i = 0; i < count && i < VGPU_PROCESSES; i++) {
        struct vgpu_process *process = &usage->slots[i];
        uint64_t owner = atomic_load(&process->owner);
        if (owner && process != own && may_have_ended(process, owner)) freed = reclaim(usage, i, owner) || freed;
    }
    return freed;
}

static bool sweep(struct vgpu_usage *usage) {
    lock_take(&attaching);
    bool freed = sweep_attaching(usage);
    lock_give(&attaching);
    return freed;
}

static void raise_high_water(struct vgpu_usage *usage, uint32_t count) {
    uint32_t before = atomic_load(&usage->header.high_water);
    while (before < count && !atomic_compare_exchange_weak(&usage->header.high_water, &before, count));
}

/* The slot that this process had before exec, with nothing in it, or NULL. */
static struct vgpu_process *find_former(struct vgpu_usage *usage) {
    uint64_t held = VGPU_OWNER_HELD | identity_own(), namespace = identity_namespace();
    uint32_t count = atomic_load(&usage->header.high_water);
    for (uint32_t i = 0; i < count && i < VGPU_PROCESSES; i++) {
        struct vgpu_process *process = &usage->slots[i];
        if (!namespace || atomic_load(&process->owner) != held || atomic_load(&process->pid_namespace) != namespace)
            continue;
        /* Exec has ended its lock: somebody may be taking the slot back, or have given it to another. */
        if (is_locked(process, held) && presence_hold(i) == PRESENCE_TAKEN) return NULL;
        if (atomic_load(&process->owner) != held) {
            presence_drop();
            return NULL;
        }
        clear_shares(process);
        return process;
    }
    return NULL;
}

/* From here on others see that this process lives; where they cannot, they take it for granted. */
static void show_presence(struct vgpu_process *process, unsigned slot) {
    enum presence presence = presence_hold(slot);
    /* Who takes a slot back lets it go before the lock. */
    for (int left = PRESENCE_TRIES; left > 0 && presence == PRESENCE_TAKEN; left--) {
        nanosleep(&(struct timespec){0, CONTEST_WAIT_NS}, NULL);
        presence = presence_hold(slot);
    }
    atomic_store(&process->locked_by, presence == PRESENCE_HELD ? atomic_load(&process->owner) : 0);
}

/* A slot for this process: the one it had before exec, else a free one. */
static struct vgpu_process *claim(struct vgpu_usage *usage) {
    uint64_t held = VGPU_OWNER_HELD | identity_own(), namespace = identity_namespace();
    struct vgpu_process *former = find_former(usage);
    if (former) return former;
    for (uint32_t i = 0; i < VGPU_PROCESSES; i++) {
        struct vgpu_process *process = &usage->slots[i];
        uint64_t nobody = 0;
        if (!atomic_compare_exchange_strong(&process->owner, &nobody, held)) continue;
        raise_high_water(usage, i + 1);
        atomic_store(&process->pid_namespace, namespace);
        show_presence(process, i);
        return process;
    }
    return NULL;
}

/* This process's slot, with what it does written into it; NULL where it has none. */
static struct vgpu_process *find_own(struct vgpu_usage *usage) {
    struct vgpu_process *own = atomic_load_explicit(&own_slot, memory_order_acquire);
    if (own) return own;
    lock_take(&attaching);
    own = atomic_load(&own_slot);
    if (!own) {
        own = claim(usage);
        if (!own && sweep_attaching(usage)) own = claim(usage);
        atomic_store(&own_slot, own);
    }
    lock_give(&attaching);
    return own;
}

static enum vgpu_status look(struct vgpu_usage **usage, struct vgpu_process **own) {
    enum vgpu_status status = files_look();
    enum vgpu_reason reason = files_reason();
    *usage = files_usage();
    *own = *usage && (!files_is_shared() || shared_attach()) ? find_own(*usage) : NULL;
    if (!*own) {
        if (*usage) atomic_store(&(*usage)->header.last_reason, VGPU_NO_SLOT);
        return status == VGPU_LIMITING ? files_fail_status() : status;
    }
    atomic_store_explicit(&(*own)->heartbeat_ns, files_now_ns(), memory_order_relaxed);
    if (atomic_load_explicit(&(*own)->status, memory_order_relaxed) != status)
        atomic_store_explicit(&(*own)->status, status, memory_order_relaxed);
    if (atomic_load_explicit(&(*own)->reason, memory_order_relaxed) != reason)
        atomic_store_explicit(&(*own)->reason, reason, memory_order_relaxed);
    return status;
}

void ledger_attach(void) {
    struct vgpu_usage *usage;
    struct vgpu_process *own;
    look(&usage, &own);
}

/* Within what all containers of a claim may have. */
static enum attempt try_shared(struct vgpu_share *share, unsigned slot, uint64_t bytes, uint64_t *decided) {
    enum attempt attempt = shared_try(slot, bytes, files_memory_limit(slot), decided);
    if (attempt == FITS) atomic_fetch_add(&share->used, bytes);
    return attempt;
}

/* *decided is what others and this process had when it did not fit. */
static enum attempt try_once(struct vgpu_usage *usage, struct vgpu_share *share, unsigned slot, uint64_t bytes,
                             uint64_t *decided) {
    if (files_is_shared()) return try_shared(share, slot, bytes, decided);
    uint64_t limit = files_memory_limit(slot);
    atomic_fetch_add(&share->pending, bytes);
    struct sums sums = add_up(usage, slot);
    bool fits = sums.all <= limit;
    if (fits) atomic_fetch_add(&share->used, bytes);
    atomic_fetch_sub(&share->pending, bytes);
    if (fits) return FITS;
    *decided = sums.decided;
    return add(sums.decided, bytes) > limit ? TOO_MUCH : CONTESTED;
}

enum verdict ledger_reserve(unsigned slot, uint64_t bytes) {
    struct vgpu_usage *usage;
    struct vgpu_process *own;
    enum vgpu_status status = look(&usage, &own);
    if (status == VGPU_REFUSING) return LEDGER_DENIED;
    if (status != VGPU_LIMITING || slot >= VGPU_DEVICES) return LEDGER_UNCOUNTED;
    struct vgpu_share *share = &own->shares[slot];
    bool swept = false;
    uint64_t decided = 0, before = UINT64_MAX;
    /* More than any limit can be, and more than sums could hold. */
    bool absurd = bytes > UINT64_C(1) << 56;
    for (int left = CONTEST_TRIES; left > 0 && !absurd; left--) {
        enum attempt attempt = try_once(usage, share, slot, bytes, &decided);
        if (attempt == FITS) return LEDGER_GRANTED;
        if (attempt == TOO_MUCH || left == CONTEST_TRIES / 2) {
            /* What the dead had may be enough, and may be all that is in the way. */
            bool freed = !swept && sweep(usage);
            swept = true;
            if (freed) continue;
        }
        if (attempt == TOO_MUCH) {
            /* A sum is no one moment: what moved from one process to another meanwhile may be in it twice. */
            if (decided == before) break;
            before = decided;
            continue;
        }
        unsigned turn = (unsigned)(CONTEST_TRIES - left) + (unsigned)((uintptr_t)&turn >> 12);
        nanosleep(&(struct timespec){0, CONTEST_WAIT_NS * (1 + turn * 7 % 5)}, NULL);
    }
    atomic_fetch_add_explicit(&share->refusals, 1, memory_order_relaxed);
    log_line("refused %llu bytes on device %u", (unsigned long long)bytes, slot);
    return LEDGER_DENIED;
}

void ledger_release(unsigned slot, uint64_t bytes) {
    struct vgpu_process *own = atomic_load_explicit(&own_slot, memory_order_acquire);
    if (!own || slot >= VGPU_DEVICES) return;
    _Atomic uint64_t *used = &own->shares[slot].used;
    uint64_t before = atomic_load(used);
    /* Somebody else may have written into the file: never below nothing. */
    while (!atomic_compare_exchange_weak(used, &before, before > bytes ? before - bytes : 0));
    if (files_is_shared()) shared_release(slot, bytes);
    atomic_store_explicit(&own->heartbeat_ns, files_now_ns(), memory_order_relaxed);
}

uint64_t ledger_used(unsigned slot) {
    static _Atomic uint64_t looked_ns;
    struct vgpu_usage *usage = files_usage();
    if (!usage || slot >= VGPU_DEVICES) return 0;
    if (files_is_shared()) return shared_used(slot);
    /* To look for the dead takes microseconds for each process, and programs ask this all the time. */
    uint64_t now = files_now_ns(), before = atomic_load_explicit(&looked_ns, memory_order_relaxed);
    if (now - before >= LOOK_EVERY_NS && atomic_compare_exchange_strong(&looked_ns, &before, now)) sweep(usage);
    return add_up(usage, slot).decided;
}

unsigned ledger_list(unsigned slot, struct ledger_holder holders[VGPU_PROCESSES]) {
    struct vgpu_usage *usage = files_usage();
    unsigned found = 0;
    if (!usage || slot >= VGPU_DEVICES) return 0;
    sweep(usage);
    uint32_t count = atomic_load(&usage->header.high_water);
    for (uint32_t i = 0; i < count && i < VGPU_PROCESSES; i++) {
        uint64_t owner = atomic_load(&usage->slots[i].owner);
        uint64_t used = atomic_load(&usage->slots[i].shares[slot].used);
        if ((owner & VGPU_OWNER_STATE) == VGPU_OWNER_HELD && used > 0)
            holders[found++] =
                (struct ledger_holder){(unsigned)(owner >> VGPU_OWNER_PID_SHIFT & VGPU_OWNER_PID_MASK), used};
    }
    return found;
}

/* With exec the driver has let go of everything, also where the new program never asks for it: who shares with it waits. */
__attribute__((constructor)) static void forget_former(void) {
    struct vgpu_usage *usage = files_open_usage();
    if (!usage) return;
    lock_take(&attaching);
    find_former(usage);
    lock_give(&attaching);
}

void ledger_after_fork(void) {
    atomic_store(&own_slot, NULL);
    atomic_store(&attaching.held, 0);
}
