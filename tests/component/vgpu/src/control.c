/* The law of the compute limit as a library, for a test that holds it to the model of it. */
#include "compute/control.h"

uint32_t next_factor(uint32_t factor, uint32_t limit, uint32_t own, uint32_t total, uint32_t waited, uint32_t soft,
                     uint32_t sure) {
    return control_next(factor, (struct control_input){limit, own, total, waited, soft, sure});
}

uint64_t charge(uint64_t cost_ns, uint32_t limit, uint32_t factor) {
    return control_charge(cost_ns, limit, factor);
}
