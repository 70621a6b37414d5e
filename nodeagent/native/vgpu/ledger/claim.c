/* See claim.h. */
#include "ledger/claim.h"

#include "ledger/devices.h"
#include "ledger/files.h"
#include "ledger/ledger.h"
#include "memory/graphs.h"
#include "memory/pools.h"

/* What pools and graphs of this process keep without using it may be all that is in the way. */
static enum verdict reserve(unsigned slot, uint64_t bytes) {
    enum verdict verdict = ledger_reserve(slot, bytes);
    if (verdict != LEDGER_DENIED) return verdict;
    bool freed = pools_shrink(slot);
    freed = graphs_shrink(slot) || freed;
    return freed ? ledger_reserve(slot, bytes) : verdict;
}

bool claim_begin_on(struct claim *claim, unsigned slot, uint64_t bytes) {
    *claim = (struct claim){NULL, bytes, slot, false};
    enum verdict verdict = bytes ? reserve(slot, bytes) : LEDGER_UNCOUNTED;
    claim->counted = verdict == LEDGER_GRANTED;
    return verdict != LEDGER_DENIED;
}

bool claim_begin(struct claim *claim, uint64_t bytes) {
    CUcontext context = NULL;
    *claim = (struct claim){NULL, bytes, FILES_NO_SLOT, false};
    if (bytes == 0 || DRIVER_CALL(cuCtxGetCurrent, &context) != CUDA_SUCCESS || !context) return true;
    bool fits = claim_begin_on(claim, devices_find_current_slot(), bytes);
    claim->context = context;
    return fits;
}

bool claim_correct(struct claim *claim, uint64_t bytes) {
    if (!claim->counted) return true;
    if (bytes > claim->bytes && reserve(claim->slot, bytes - claim->bytes) != LEDGER_GRANTED) return false;
    if (bytes < claim->bytes) ledger_release(claim->slot, claim->bytes - bytes);
    claim->bytes = bytes;
    return true;
}

void claim_drop(const struct claim *claim) {
    if (claim->counted) ledger_release(claim->slot, claim->bytes);
}

CUresult claim_end(const struct claim *claim, CUresult result, enum block_kind kind, uint64_t key,
                   CUresult (*give_back)(uint64_t key)) {
    if (!claim->counted) return result;
    if (result == CUDA_SUCCESS) {
        if (blocks_add((struct block){key, kind, claim->slot, claim->context, claim->bytes})) return CUDA_SUCCESS;
        give_back(key);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    claim_drop(claim);
    return result;
}

CUresult claim_end_free(bool found, const struct block *block, CUresult result) {
    if (found && result != CUDA_SUCCESS) blocks_add(*block);
    else if (found && !pools_forget(block)) ledger_release(block->slot, block->bytes);
    return result;
}

CUresult claim_free(enum block_kind kind, uint64_t key, CUresult (*give_back)(uint64_t key)) {
    struct block block;
    bool found = blocks_take(kind, key, &block);
    return claim_end_free(found, &block, give_back(key));
}
