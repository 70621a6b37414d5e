/* See blocks.h. */
#include "blocks.h"

#include <stdlib.h>
#include <string.h>

#include "lock.h"

#define BUCKETS 16384u
#define LOCKS 64u

struct node {
    struct node *next;
    struct block block;
};

static struct node *buckets[BUCKETS];
static struct lock locks[LOCKS];

/* Addresses are multiples of a power of two, so the upper bits of a product choose. */
static unsigned choose_bucket(uint64_t address)
{
    return (unsigned)(address * UINT64_C(0x9e3779b97f4a7c15) >> 50);
}
_Static_assert(BUCKETS == 1u << (64 - 50), "as many as the bits above choose from");

static struct lock *find_lock(unsigned bucket)
{
    return &locks[bucket % LOCKS];
}

bool blocks_add(struct block block)
{
    struct node *node = malloc(sizeof *node);
    if (!node)
        return false;
    unsigned bucket = choose_bucket(block.address);
    node->block = block;
    lock_take(find_lock(bucket));
    node->next = buckets[bucket];
    buckets[bucket] = node;
    lock_give(find_lock(bucket));
    return true;
}

/* The first of a bucket with this address, or of this context where one is given. */
static bool take(unsigned bucket, uint64_t address, const void *context, struct block *block)
{
    lock_take(find_lock(bucket));
    struct node **place = &buckets[bucket];
    while (*place && !(context ? (*place)->block.context == context : (*place)->block.address == address))
        place = &(*place)->next;
    struct node *found = *place;
    if (found)
        *place = found->next;
    lock_give(find_lock(bucket));
    if (found)
        *block = found->block;
    free(found);
    return found != NULL;
}

bool blocks_take(uint64_t address, struct block *block)
{
    return take(choose_bucket(address), address, NULL, block);
}

bool blocks_take_of(const void *context, unsigned *place, struct block *block)
{
    for (; context && *place < BUCKETS; ++*place)
        if (take(*place, 0, context, block))
            return true;
    return false;
}

/* What the parent had is left to lie: another thread of it may have been in the middle of a change. */
void blocks_after_fork(void)
{
    memset(buckets, 0, sizeof buckets);
    for (unsigned i = 0; i < LOCKS; i++)
        atomic_store(&locks[i].held, 0);
}
