/* See driver.h. */
#include "driver.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "real.h"

typedef void *(*dlopen_type)(const char *, int);
typedef void *(*dlsym_type)(void *, const char *);

static const char *const names[] = {
#define DRIVER(name, arguments) #name,
    DRIVER_FUNCTIONS
#undef DRIVER
};
static _Atomic(void *) functions[DRIVER_COUNT];

/* By the driver's handle, whose scope has nothing of whoever stands before it. Never loads a driver by itself. */
static void *look_up(const char *name)
{
    dlopen_type open = (dlopen_type)real_find("dlopen");
    dlsym_type find = (dlsym_type)real_find("dlsym");
    void *driver = open ? open("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    return driver && find ? find(driver, name) : NULL;
}

void *driver_find(enum driver_function which)
{
    void *function = atomic_load_explicit(&functions[which], memory_order_acquire);
    if (!function) {
        function = look_up(names[which]);
        atomic_store_explicit(&functions[which], function, memory_order_release);
    }
    return function;
}
