/* Start, devices, and the failures that the environment wants. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

#define FAULTS_MOST 32

/* FAKE_CUDA_FAIL is NAME=CODE or NAME=CODE@CALL, with commas between: each call, or only that one, counted from 1. */
struct fault {
    char name[64];
    int code;
    unsigned call;
    atomic_uint calls;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static struct fault faults[FAULTS_MOST];
static int fault_count, device_count;
static uint64_t totals[DEVICES_MOST];
static atomic_int initialized, is_lost;

static void read_environment(void) {
    const char *at = getenv("FAKE_CUDA_DEVICES");
    for (at = at ? at : "17179869184,17179869184"; *at && device_count < DEVICES_MOST; device_count++) {
        char *end;
        totals[device_count] = strtoull(at, &end, 10);
        at = *end ? end + 1 : end;
    }
    for (at = getenv("FAKE_CUDA_FAIL"); at && *at && fault_count < FAULTS_MOST; fault_count++) {
        struct fault *fault = &faults[fault_count];
        if (sscanf(at, "%63[^=]=%d@%u", fault->name, &fault->code, &fault->call) < 2) {
            fprintf(stderr, "FAKE_CUDA_FAIL is not understood at %s\n", at);
            abort();
        }
        at = strchr(at, ',');
        at = at ? at + 1 : at;
    }
}

/* The child of a process that has started the driver can never use it. */
static void lose(void) {
    atomic_store(&is_lost, atomic_load(&initialized));
}

uint64_t fake_number(const char *variable, uint64_t otherwise) {
    const char *said = getenv(variable);
    return said ? strtoull(said, NULL, 10) : otherwise;
}

result fake_begin(const char *name, int needs_init) {
    pthread_once(&once, read_environment);
    for (int i = 0; i < fault_count; i++) {
        struct fault *fault = &faults[i];
        if (strcmp(fault->name, name) == 0 && (atomic_fetch_add(&fault->calls, 1) + 1 == fault->call || !fault->call)) {
            while (fault->code == HANGS) pause();
            if (fault->code == CRASHES) raise(SIGSEGV);
            return fault->code;
        }
    }
    return (needs_init && !atomic_load(&initialized)) || atomic_load(&is_lost) ? NOT_INITIALIZED : SUCCESS;
}

int fake_driver_version(void) {
    return (int)fake_number("FAKE_CUDA_VERSION", 12080);
}

int fake_device_count(void) {
    return device_count;
}

uint64_t fake_total(device device) {
    return totals[device];
}

EXPORT result cuInit(unsigned flags) {
    BEGIN_WITHOUT_INIT;
    REQUIRE(flags == 0, INVALID_VALUE);
    REQUIRE(device_count > 0, NO_DEVICE);
    pthread_mutex_lock(&starting);
    result verdict = initialized ? SUCCESS : account_open();
    if (verdict == SUCCESS && !initialized) pthread_atfork(NULL, NULL, lose);
    if (verdict == SUCCESS) initialized = 1;
    pthread_mutex_unlock(&starting);
    return verdict;
}

EXPORT result cuDriverGetVersion(int *version) {
    REQUIRE(version, INVALID_VALUE);
    *version = fake_driver_version();
    return SUCCESS;
}

EXPORT result cuDeviceGetCount(int *count) {
    BEGIN;
    REQUIRE(count, INVALID_VALUE);
    *count = device_count;
    return SUCCESS;
}

EXPORT result cuDeviceGet(device *which, int ordinal) {
    BEGIN;
    REQUIRE(which, INVALID_VALUE);
    REQUIRE_DEVICE(ordinal);
    *which = ordinal;
    return SUCCESS;
}

EXPORT result cuDeviceGetName(char *name, int length, device which) {
    BEGIN;
    REQUIRE(name && length > 0, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    snprintf(name, (size_t)length, "Fake GPU");
    return SUCCESS;
}

/* 15 bytes of nothing and the ordinal; of the first devices what FAKE_CUDA_UUID says, in 32 digits each with commas between. */
static result get_uuid(uint8_t *uuid, device which) {
    REQUIRE(uuid, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    memset(uuid, 0, 16);
    uuid[15] = (uint8_t)which;
    const char *said = getenv("FAKE_CUDA_UUID");
    if (said) said = strlen(said) >= 33 * (size_t)which + 32 ? said + 33 * which : NULL;
    for (int at = 0; said && at < 16; at++)
        if (sscanf(said + 2 * at, "%2hhx", &uuid[at]) != 1) {
            fprintf(stderr, "FAKE_CUDA_UUID is not 32 digits: %s\n", said);
            abort();
        }
    return SUCCESS;
}

EXPORT result cuDeviceGetUuid(uint8_t *uuid, device which) {
    BEGIN;
    return get_uuid(uuid, which);
}

EXPORT result cuDeviceGetUuid_v2(uint8_t *uuid, device which) {
    BEGIN;
    return get_uuid(uuid, which);
}

EXPORT result cuDeviceGetAttribute(int *value, int attribute, device which) {
    BEGIN;
    REQUIRE(value, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    switch (attribute) {
    case 13: *value = 1980000; break;   /* kHz */
    case 16: *value = 132; break;       /* multiprocessors */
    case 33: *value = which + 1; break; /* PCI bus */
    case 36: *value = 625; break;       /* kHz of the memory, twice for each bit of the bus */
    case 37: *value = 8192; break;      /* bits of the bus */
    case 41:                            /* unified addressing */
    case 83: *value = 1; break;         /* managed memory */
    case 75: *value = 9; break;         /* compute capability */
    default: *value = 0;
    }
    return SUCCESS;
}

EXPORT result cuDeviceTotalMem(unsigned *bytes, device which) {
    BEGIN;
    REQUIRE(bytes, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    *bytes = totals[which] > UINT32_MAX ? UINT32_MAX : (unsigned)totals[which];
    return SUCCESS;
}

EXPORT result cuDeviceTotalMem_v2(size_t *bytes, device which) {
    BEGIN;
    REQUIRE(bytes, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    *bytes = totals[which];
    return SUCCESS;
}
