/* What the source files of the fake driver share. Its numbers are those of CUDA; its sizes are what the environment says. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define DEVICES_MOST 16

typedef int result;
typedef int device;
typedef unsigned long long address;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_HANDLE = 400,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    NOT_READY = 600,
    NOT_SUPPORTED = 801
};

/* As a fault: success, with nothing done and nothing written, as of a driver that allows every output to be NULL. */
#define ALLOWS_NOTHING_WRITTEN (-1)
/* As a fault: the call never returns. */
#define HANGS (-2)
/* As a fault: the call ends the program, as a bug in the library would. */
#define CRASHES (-3)

struct context {
    struct context *next;
    device device;
    unsigned retained; /* primary contexts only */
};

/* driver.c: whether this process may call anything, and what the environment wants of this call. */
result fake_begin(const char *name, int needs_init);
uint64_t fake_number(const char *variable, uint64_t otherwise);
int fake_driver_version(void);
int fake_device_count(void);
uint64_t fake_total(device device);

/* account.c: what all processes have of a device, kept in a file that the tests read. */
result account_open(void);
result account_charge(device device, uint64_t bytes);
void account_credit(device device, uint64_t bytes);
uint64_t account_used(device device);
void account_busy(uint64_t nanoseconds);

/* context.c */
struct context *context_current(void);

/* memory.c: addresses; what has a pool is the pool's when it is freed, and goes with no context. */
struct pool;
result memory_place(address *at, uint64_t bytes, const struct context *context, struct pool *pool, int is_narrow);
result memory_release(address at, uint64_t passed_ns);
void memory_forget(const struct context *context);

/* array.c */
void array_forget(const struct context *context);

/* pool.c */
/* Until then it is kept: the stream has work to do before it comes to the free. */
void pool_free(struct pool *pool, uint64_t bytes, uint64_t passed_ns);
void pool_synchronize(void);

/* stream.c: of a stream that is being captured, the graph that grows by it. */
struct graph *stream_capturing(void *stream);
void events_forget(const struct context *context);

/* launch.c: of this process. All its work is done one after another. */
uint64_t launch_end(void);
void launch_wait(uint64_t until_ns);
uint64_t launch_now(void);
void launch_add(uint64_t nanoseconds);
uint64_t launch_duration(const void *function);
/* The host worked in the device's place for so long: that is no time. */
void launch_forget(uint64_t nanoseconds);

/* proof.c: the prover's kernels, by a number that is not 0. */
int proof_find(const char *name);
uint64_t proof_run(int kernel, device which, unsigned blocks, void **arguments);

/* graph.c */
struct graph *graph_create(void);
result graph_add_allocation(struct graph *graph, device device, uint64_t bytes, address *at);
result graph_add_free(struct graph *graph, address at);
result graph_add_kernel(struct graph *graph, const void *function);

/* graph_memory.c: what no node frees is added with its address, all else with 0. */
struct graph_memory;
struct graph_memory *graph_memory_create(int frees_on_launch);
void graph_memory_add(struct graph_memory *memory, device device, uint64_t bytes, address unfreed);
result graph_memory_map(struct graph_memory *memory, const void *stream);
result graph_memory_launch(struct graph_memory *memory, const void *stream);
void graph_memory_end_launch(const void *stream);
result graph_memory_free(address at);

#define BEGIN_WITHOUT_INIT                                                            \
    {                                                                                 \
        result verdict_ = fake_begin(__func__, 0);                                    \
        if (verdict_) return verdict_ == ALLOWS_NOTHING_WRITTEN ? SUCCESS : verdict_; \
    }
#define BEGIN                                                                         \
    {                                                                                 \
        result verdict_ = fake_begin(__func__, 1);                                    \
        if (verdict_) return verdict_ == ALLOWS_NOTHING_WRITTEN ? SUCCESS : verdict_; \
    }
#define REQUIRE(condition, code)  \
    if (!(condition)) return code
/* What CUDA says where memory is: on a device, by its number. */
struct location {
    int type;
    int id;
};
#define ON_DEVICE 1

/* The head of CUDA's description of a pool. */
struct pool_properties {
    int type, handle_types;
    struct location location;
    char more[72];
};

#define REQUIRE_DEVICE(which) REQUIRE((which) >= 0 && (which) < fake_device_count(), INVALID_DEVICE)
