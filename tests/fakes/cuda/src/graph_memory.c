/*
 * What graphs take of devices, by what CUDA's manual says of graph memory nodes and NVIDIA's sample graphMemoryFootprint shows:
 * nothing when they are made; as many bytes as the addresses of their nodes, from the first launch, or upload, on; the same
 * bytes for all graphs that are launched in one stream, other ones in another stream; kept when graphs are destroyed. What no
 * node frees is the graph's until the program frees it, or a launch does. A trim gives back what is neither that nor of a
 * stream whose graphs still run.
 */
#include <pthread.h>
#include <stdlib.h>

#include "fake.h"

#define STREAMS_MOST 64
#define UNFREED_MOST 64

enum attribute { USED = 0, USED_HIGH = 1, RESERVED = 2, RESERVED_HIGH = 3 };

struct part {
    uint64_t reserved, unfreed;
};
struct stream_memory {
    const void *stream;
    uint64_t busy_until_ns;
    struct part parts[DEVICES_MOST];
};
struct graph_memory {
    struct graph_memory *next;
    int frees_on_launch;
    uint64_t needs[DEVICES_MOST], unfreed[DEVICES_MOST];
    address addresses[UNFREED_MOST];
    unsigned count, left; /* addresses that no node frees, and those that are allocated now */
    struct stream_memory *allocated_in;
};

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct graph_memory *memories;
static struct stream_memory streams[STREAMS_MOST];
static unsigned streams_count;
static uint64_t highest[DEVICES_MOST][2];

struct graph_memory *graph_memory_create(int frees_on_launch) {
    struct graph_memory *memory = calloc(1, sizeof *memory);
    if (!memory) abort();
    memory->frees_on_launch = frees_on_launch;
    pthread_mutex_lock(&changing);
    memory->next = memories;
    memories = memory;
    pthread_mutex_unlock(&changing);
    return memory;
}

void graph_memory_add(struct graph_memory *memory, device device, uint64_t bytes, address unfreed) {
    memory->needs[device] += bytes;
    if (unfreed && memory->count < UNFREED_MOST) {
        memory->unfreed[device] += bytes;
        memory->addresses[memory->count++] = unfreed;
    }
}

static struct stream_memory *find_stream(const void *stream) {
    unsigned i = 0;
    while (i < streams_count && streams[i].stream != stream) i++;
    if (i == streams_count && i < STREAMS_MOST) streams[streams_count++].stream = stream;
    return i < STREAMS_MOST ? &streams[i] : NULL;
}

static uint64_t add_up(device which, int attribute) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < streams_count; i++) {
        const struct part *part = &streams[i].parts[which];
        int is_used = attribute == RESERVED || streams[i].busy_until_ns > launch_now();
        sum += is_used ? part->reserved : part->unfreed;
    }
    return sum;
}

static result map(const struct graph_memory *memory, struct stream_memory *stream) {
    REQUIRE(stream, OUT_OF_MEMORY);
    for (device which = 0; which < DEVICES_MOST; which++) {
        struct part *part = &stream->parts[which];
        uint64_t spare = part->reserved - part->unfreed, needs = memory->needs[which];
        result verdict = needs > spare ? account_charge(which, needs - spare) : SUCCESS;
        REQUIRE(verdict == SUCCESS, verdict);
        part->reserved += needs > spare ? needs - spare : 0;
        uint64_t reserved = add_up(which, RESERVED);
        highest[which][1] = reserved > highest[which][1] ? reserved : highest[which][1];
    }
    return SUCCESS;
}

static void end_unfreed(struct graph_memory *memory) {
    for (device which = 0; memory->left > 0 && which < DEVICES_MOST; which++)
        memory->allocated_in->parts[which].unfreed -= memory->unfreed[which];
    memory->left = 0;
}

result graph_memory_map(struct graph_memory *memory, const void *stream) {
    pthread_mutex_lock(&changing);
    result verdict = map(memory, find_stream(stream));
    pthread_mutex_unlock(&changing);
    return verdict;
}

result graph_memory_launch(struct graph_memory *memory, const void *stream) {
    pthread_mutex_lock(&changing);
    result verdict = memory->left > 0 && !memory->frees_on_launch ? INVALID_VALUE : SUCCESS;
    struct stream_memory *own = find_stream(stream);
    if (verdict == SUCCESS) {
        end_unfreed(memory);
        verdict = map(memory, own);
    }
    if (verdict == SUCCESS) {
        memory->left = memory->count;
        memory->allocated_in = own;
        for (device which = 0; which < DEVICES_MOST; which++) own->parts[which].unfreed += memory->unfreed[which];
    }
    pthread_mutex_unlock(&changing);
    return verdict;
}

void graph_memory_end_launch(const void *stream) {
    uint64_t end = launch_end();
    pthread_mutex_lock(&changing);
    find_stream(stream)->busy_until_ns = end;
    for (device which = 0; which < DEVICES_MOST; which++) {
        uint64_t used = add_up(which, USED);
        highest[which][0] = used > highest[which][0] ? used : highest[which][0];
    }
    pthread_mutex_unlock(&changing);
}

/* What a graph has left allocated is free with the last of it. */
result graph_memory_free(address at) {
    result verdict = INVALID_VALUE;
    pthread_mutex_lock(&changing);
    for (struct graph_memory *memory = memories; memory && verdict != SUCCESS; memory = memory->next)
        for (unsigned i = 0; memory->left > 0 && i < memory->count; i++)
            if (memory->addresses[i] == at) {
                verdict = SUCCESS;
                if (memory->left == 1) end_unfreed(memory);
                else memory->left--;
                break;
            }
    pthread_mutex_unlock(&changing);
    return verdict;
}

EXPORT result cuDeviceGraphMemTrim(device which) {
    BEGIN;
    REQUIRE_DEVICE(which);
    pthread_mutex_lock(&changing);
    for (unsigned i = 0; i < streams_count; i++) {
        struct part *part = &streams[i].parts[which];
        if (streams[i].busy_until_ns > launch_now()) continue;
        account_credit(which, part->reserved - part->unfreed);
        part->reserved = part->unfreed;
    }
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}

EXPORT result cuDeviceGetGraphMemAttribute(device which, int attribute, uint64_t *value) {
    BEGIN;
    REQUIRE_DEVICE(which);
    REQUIRE(value && attribute >= USED && attribute <= RESERVED_HIGH, INVALID_VALUE);
    pthread_mutex_lock(&changing);
    if (attribute == USED || attribute == RESERVED) *value = add_up(which, attribute);
    else *value = highest[which][attribute == RESERVED_HIGH];
    pthread_mutex_unlock(&changing);
    return SUCCESS;
}
