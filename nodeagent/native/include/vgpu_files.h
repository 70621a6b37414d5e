/*
 * The two files between the agent and the vGPU library, as they lie in memory: little-endian, naturally aligned.
 *
 * limits: written by the agent in place, mapped read-only in the container. Never truncated, never renamed over while a
 *   container has it; slots keep their place and UUID for the life of the file.
 * usage: made by the agent, filled by the library in every process of the container, read by the agent. Where several
 *   containers share a claim, each has one of its own, which the library makes in memory that ends with the container.
 * shared: of all containers that have one claim, made by the agent; nobody maps it.
 *
 * `nodeagent/edge/host/vgpu/layout.py` says the same for Python, and a test holds both equal.
 */
#ifndef NODEAGENT_VGPU_FILES_H
#define NODEAGENT_VGPU_FILES_H

#include <stdatomic.h>
#include <stdint.h>

#define VGPU_LIMITS_MAGIC UINT64_C(0x316d696c75706776) /* "vgpulim1" */
#define VGPU_USAGE_MAGIC UINT64_C(0x3165737575706776)  /* "vgpuuse1" */
#define VGPU_VERSION 1u
#define VGPU_DEVICES 16u
#define VGPU_PROCESSES 256u
#define VGPU_UUID_BYTES 16u
#define VGPU_CHECKSUM_START UINT64_C(0xcbf29ce484222325) /* FNV-1a, 64 bits */
#define VGPU_CHECKSUM_PRIME UINT64_C(0x100000001b3)

/* What happens where limits or usage cannot be used. */
enum vgpu_fail_mode { VGPU_PASS = 0, VGPU_REFUSE = 1 };

/* Bits of vgpu_limit.flags. */
enum vgpu_flag { VGPU_LIMIT_MEMORY = 1, VGPU_LIMIT_CORES = 2, VGPU_SOFT = 4, VGPU_MIG = 8 };

/* What a process does. */
enum vgpu_status { VGPU_STARTING = 0, VGPU_LIMITING = 1, VGPU_PASSING = 2, VGPU_REFUSING = 3 };

/* Why it does not limit, or not by the file as it lies there. */
enum vgpu_reason {
    VGPU_FINE = 0,
    VGPU_LIMITS_MISSING = 1,
    VGPU_LIMITS_OLDER = 2,
    VGPU_LIMITS_NEWER = 3,
    VGPU_LIMITS_DAMAGED = 4,
    VGPU_USAGE_UNUSABLE = 5,
    VGPU_NO_SLOT = 6
};

/*
 * Magic, version and fail_mode keep their place in every version. An odd sequence means that the agent is writing. The
 * checksum is over the header up to `sequence`, then the slots.
 */
struct vgpu_limits_header {
    uint64_t magic;
    uint32_t version;
    uint32_t fail_mode;
    uint32_t header_bytes;
    uint32_t slot_bytes;
    uint32_t slots;
    uint32_t reserved;
    _Atomic uint64_t sequence;
    uint64_t checksum;
    uint64_t more[2];
};

/* One GPU or MIG device; without a flag its limit does not hold. */
struct vgpu_limit {
    uint8_t uuid[VGPU_UUID_BYTES];
    uint64_t memory_bytes;
    uint32_t core_percent;
    uint32_t flags;
    uint64_t context_bytes; /* what each context takes, charged when one is made */
    uint64_t more[3];
};

/*
 * `measured`, of each slot, changes many times a second and is outside the checksum: a number that grows with each
 * measurement (32 bits, from the top), then how busy all had the device, and the container, in 1/10000 (16 bits each).
 */
struct vgpu_limits {
    struct vgpu_limits_header header;
    struct vgpu_limit limits[VGPU_DEVICES];
    _Atomic uint64_t measured[VGPU_DEVICES];
};

/* The checksum is over the header up to itself; what follows it is counted by the processes. */
struct vgpu_usage_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint32_t process_bytes;
    uint32_t processes;
    uint32_t devices;
    uint32_t reserved;
    uint64_t checksum;
    _Atomic uint32_t high_water; /* slots from here on were never used */
    _Atomic uint32_t last_reason;
    _Atomic uint64_t passing_starts;  /* processes that began to pass through */
    _Atomic uint64_t refusing_starts; /* processes that began to refuse */
    uint64_t more[8];
};

/*
 * A process's own part of one device. `pending` is asked for and not yet found to fit; `used` is charged. Both only the
 * process itself changes, and whoever takes a dead process's slot back.
 */
struct vgpu_share {
    _Atomic uint64_t used;
    _Atomic uint64_t pending;
    _Atomic uint64_t refusals;
    uint64_t more;
};

/*
 * `owner` is 0 when free, else state (2 bits, from the top), pid (22 bits), start time in clock ticks (40 bits). The pid
 * is as seen in the namespace `pid_namespace`. Whoever is in another tells by a lock whether the process lives, where
 * `locked_by` says that there is one, by the owner that holds it: on the byte of the file whose number is the slot's. It
 * counts for this owner alone, as a library that knows no lock gives a slot on without clearing it.
 */
struct vgpu_process {
    _Atomic uint64_t owner;
    _Atomic uint64_t pid_namespace;
    _Atomic uint64_t heartbeat_ns; /* CLOCK_MONOTONIC, of the last allocation or release */
    _Atomic uint32_t status;
    _Atomic uint32_t reason;
    _Atomic uint64_t locked_by;
    uint64_t more[3];
    struct vgpu_share shares[VGPU_DEVICES];
};

#define VGPU_OWNER_HELD (UINT64_C(1) << 62)
#define VGPU_OWNER_RECLAIMED (UINT64_C(2) << 62) /* pid and start are the reclaimer's */
#define VGPU_OWNER_STATE (UINT64_C(3) << 62)
#define VGPU_OWNER_PID_SHIFT 40
#define VGPU_OWNER_PID_MASK UINT64_C(0x3fffff)
#define VGPU_OWNER_START_MASK ((UINT64_C(1) << 40) - 1)

/*
 * One for each device, which all processes of the container draw on: from `due_ns` on, on CLOCK_MONOTONIC, the next launch
 * may go. `control` is the number of the last measurement (32 bits, from the top) and what the limit is multiplied by, in
 * 1/65536. Measurements since `since_ns` are put together in `gathered`: how many (16 bits, from the top), and the sums of
 * how busy all had the device, and the container (24 bits each). `longest_ns` is what the longest of the last launches took
 * up. `waited_ns` only grows.
 */
struct vgpu_bucket {
    _Atomic uint64_t due_ns;
    _Atomic uint64_t control;
    _Atomic uint64_t waited_ns;
    _Atomic uint64_t seen_waited_ns; /* when `control` was last changed by what was measured */
    _Atomic uint64_t gathered;
    _Atomic uint64_t since_ns;
    _Atomic uint64_t longest_ns;
    uint64_t more;
};

struct vgpu_usage {
    struct vgpu_usage_header header;
    struct vgpu_process slots[VGPU_PROCESSES];
    struct vgpu_bucket buckets[VGPU_DEVICES];
};

/*
 * What the processes of a claim's containers have together. What a process has of a device's memory it shows by locks of its
 * open file, on as many bytes, far behind the file's end: nobody else can take these away or hide them, and the kernel does
 * so itself when the process has ended. What one container writes into the file, or cuts off, is nothing of another.
 * `due_ns` of each device is as in vgpu_bucket, changed by whoever holds the lock on the byte for it.
 */
struct vgpu_shared {
    uint64_t due_ns[VGPU_DEVICES];
};

/* Locks, by the number of their byte. The lowest is held by a process as long as it lives: its number among all of them. */
#define VGPU_SHARED_PROCESS (UINT64_C(1) << 61)
#define VGPU_SHARED_DUE (VGPU_SHARED_PROCESS + VGPU_PROCESSES)
/* For each device what is pending, then what is used: for each process so many bytes, as many of them locked as it has. */
#define VGPU_SHARED_MEMORY (UINT64_C(1) << 62)
#define VGPU_SHARED_BYTES (UINT64_C(1) << 48)
#define VGPU_SHARED_USED (VGPU_PROCESSES * VGPU_SHARED_BYTES)
#define VGPU_SHARED_DEVICE (2 * VGPU_SHARED_USED)

_Static_assert(sizeof(struct vgpu_limits_header) == 64, "limits header");
_Static_assert(sizeof(struct vgpu_limit) == 64, "limit");
_Static_assert(sizeof(struct vgpu_usage_header) == 128, "usage header");
_Static_assert(sizeof(struct vgpu_share) == 32, "share");
_Static_assert(sizeof(struct vgpu_bucket) == 64, "bucket");
_Static_assert(VGPU_SHARED_MEMORY + VGPU_DEVICES * VGPU_SHARED_DEVICE <= INT64_MAX, "locks within a file");
_Static_assert(sizeof(struct vgpu_process) == 64 + VGPU_DEVICES * 32, "process");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "counters shared between processes");

#endif
