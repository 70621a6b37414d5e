/* See driver.h. */
#include "front/driver.h"

#include <stdatomic.h>

#include "front/loader.h"

static const char *const names[] = {
#define DRIVER(name, arguments) #name,
    DRIVER_FUNCTIONS
#undef DRIVER
};
static _Atomic(void *) functions[DRIVER_COUNT];

void *driver_find(enum driver_function which) {
    void *function = atomic_load_explicit(&functions[which], memory_order_acquire);
    if (!function) {
        function = loader_find(LIBRARY_CUDA, names[which]);
        atomic_store_explicit(&functions[which], function, memory_order_release);
    }
    return function;
}
