/* See blocks.h. */
#include "memory/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "ledger/lock.h"

#define BUCKETS 16384u
#define LOCKS 64u

struct block_list {
    struct block_list *next;
    struct block block;
};

static struct block_list *buckets[BUCKETS];
static struct lock locks[LOCKS];

/* Addresses are multiples of a power of two, so the upper bits of a product choose. */
static unsigned choose_bucket(enum block_kind kind, uint64_t key) {
    return (unsigned)((key + (uint64_t)kind) * UINT64_C(0x9e3779b97f4a7c15) >> 50);
}
_Static_assert(BUCKETS == 1u << (64 - 50), "as many as the bits above choose from");

static struct lock *find_lock(unsigned bucket) {
    return &locks[bucket % LOCKS];
}

static void put(struct block_list *node) {
    unsigned bucket = choose_bucket(node->block.kind, node->block.key);
    lock_take(find_lock(bucket));
    node->next = buckets[bucket];
    buckets[bucket] = node;
    lock_give(find_lock(bucket));
}

bool blocks_add(struct block block) {
    struct block_list *node = malloc(sizeof *node);
    if (!node) return false;
    node->block = block;
    put(node);
    return true;
}

bool blocks_take(enum block_kind kind, uint64_t key, struct block *block) {
    unsigned bucket = choose_bucket(kind, key);
    lock_take(find_lock(bucket));
    struct block_list **place = &buckets[bucket];
    while (*place && ((*place)->block.key != key || (*place)->block.kind != kind)) place = &(*place)->next;
    struct block_list *found = *place;
    if (found) *place = found->next;
    lock_give(find_lock(bucket));
    if (found) *block = found->block;
    free(found);
    return found != NULL;
}

bool blocks_find(enum block_kind kind, uint64_t key, struct block *block) {
    unsigned bucket = choose_bucket(kind, key);
    lock_take(find_lock(bucket));
    const struct block_list *each = buckets[bucket];
    while (each && (each->block.key != key || each->block.kind != kind)) each = each->next;
    if (each) *block = each->block;
    lock_give(find_lock(bucket));
    return each != NULL;
}

struct block_list *blocks_take_of(const void *owner) {
    struct block_list *taken = NULL;
    for (unsigned bucket = 0; owner && bucket < BUCKETS; bucket++) {
        lock_take(find_lock(bucket));
        for (struct block_list **place = &buckets[bucket]; *place;) {
            struct block_list *node = *place;
            if (node->block.owner != owner) {
                place = &node->next;
                continue;
            }
            *place = node->next;
            node->next = taken;
            taken = node;
        }
        lock_give(find_lock(bucket));
    }
    return taken;
}

bool blocks_pop(struct block_list **list, struct block *block) {
    struct block_list *first = *list;
    if (!first) return false;
    *block = first->block;
    *list = first->next;
    free(first);
    return true;
}

void blocks_put_back(struct block_list *list) {
    while (list) {
        struct block_list *first = list;
        list = first->next;
        put(first);
    }
}

/* What the parent had is left to lie: another thread of it may have been in the middle of a change. */
void blocks_after_fork(void) {
    memset(buckets, 0, sizeof buckets);
    for (unsigned i = 0; i < LOCKS; i++) atomic_store(&locks[i].held, 0);
}
