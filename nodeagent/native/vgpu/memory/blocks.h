/*
 * What this process has on the devices, by the address or handle that the driver gave, so that what is given back is known
 * without asking anybody.
 *
 * A block is taken out before the driver frees it: afterwards the driver may give its key to another thread at once. Put
 * it back where the driver refuses. What is not there is somebody else's, and only the driver can say about it.
 */
#ifndef VGPU_BLOCKS_H
#define VGPU_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum block_kind { BLOCK_LINEAR, BLOCK_ARRAY, BLOCK_MIPMAP, BLOCK_CONTEXT, BLOCK_GRAPH };

struct block {
    uint64_t key;
    enum block_kind kind;
    unsigned slot;     /* of the ledger */
    const void *owner; /* a context, or what else it goes with */
    uint64_t bytes;
};

/* Blocks that were taken out together. */
struct block_list;

/* False where there is no memory for it. */
bool blocks_add(struct block block);

/* Into *block; false where it is not there. */
bool blocks_take(enum block_kind kind, uint64_t key, struct block *block);

/* The same, and it stays there. */
bool blocks_find(enum block_kind kind, uint64_t key, struct block *block);

/* All of an owner that is about to end. */
struct block_list *blocks_take_of(const void *owner);

/* One of the list into *block; false at its end. */
bool blocks_pop(struct block_list **list, struct block *block);

/* The owner did not end. */
void blocks_put_back(struct block_list *list);

/* In the child of a fork: it has none. */
void blocks_after_fork(void);

#endif
