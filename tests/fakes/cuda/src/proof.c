/*
 * The prover's kernels computed here, and copies that copy: for that FAKE_CUDA_BACKED gives addresses that lead somewhere.
 * FAKE_CUDA_WRONG is PLACE:WORD with commas between: a bit of this word is wrong after each write (memory) or copy (to, from,
 * peer). FAKE_CUDA_GBPS is PLACE=SPEED likewise. FAKE_CUDA_MISSING_SM and FAKE_CUDA_WRONG_SM name an SM. All of them are faults
 * of the device FAKE_CUDA_FAULTY, or of each, or of those that have a 1 in the file FAKE_CUDA_FAULTY_FILE, which has a
 * character for each device. What the host computes takes no time of the device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define FACTOR UINT64_C(0x9E3779B97F4A7C15)
#define THREADS 128u
#define SMS 132u
#define NO_SM UINT64_MAX

static int is_faulty(device which) {
    const char *path = getenv("FAKE_CUDA_FAULTY_FILE");
    if (path) {
        char said[DEVICES_MOST + 1] = "";
        FILE *file = fopen(path, "r");
        int is_read = file && fgets(said, sizeof said, file) != NULL;
        if (file) fclose(file);
        return is_read && strlen(said) > (size_t)which && said[which] == '1';
    }
    return fake_number("FAKE_CUDA_FAULTY", (uint64_t)which) == (uint64_t)which;
}

/* What an environment variable says of a place: NAME, the separator, a number. */
static double find_said(const char *variable, const char *place, char separator, double otherwise) {
    for (const char *at = getenv(variable); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, place, strlen(place)) == 0 && at[strlen(place)] == separator)
            return strtod(at + strlen(place) + 1, NULL);
    return otherwise;
}

static void spoil(device which, const char *place, address at, uint64_t bytes) {
    double word = find_said("FAKE_CUDA_WRONG", place, ':', -1);
    if (word >= 0 && ((uint64_t)word + 1) * 8 <= bytes && is_faulty(which)) ((uint64_t *)at)[(uint64_t)word] ^= 1u << 9;
}

static uint64_t find_duration(device which, const char *place, uint64_t bytes) {
    double gbps = find_said("FAKE_CUDA_GBPS", place, '=', 1);
    return (uint64_t)((double)bytes / (is_faulty(which) ? gbps : 1));
}

static uint64_t find_word(uint64_t index, uint64_t seed, uint64_t mask) {
    uint64_t word = (index + seed) * FACTOR;
    return (word ^ word >> 32) ^ mask;
}

static uint64_t fill(device which, void **arguments) {
    uint64_t base = *(uint64_t *)arguments[0], words = 2 * *(uint64_t *)arguments[1];
    uint64_t seed = *(uint64_t *)arguments[2], mask = *(uint64_t *)arguments[3];
    for (uint64_t i = 0; i < words; i++) ((uint64_t *)base)[i] = find_word(i, seed, mask);
    spoil(which, "memory", base, words * 8);
    return find_duration(which, "memory", words * 8);
}

static uint64_t check(device which, void **arguments) {
    uint64_t base = *(uint64_t *)arguments[0], words = 2 * *(uint64_t *)arguments[1];
    uint64_t seed = *(uint64_t *)arguments[2], mask = *(uint64_t *)arguments[3];
    uint64_t *found = *(uint64_t **)arguments[4];
    for (uint64_t i = 0; i < words; i++) {
        if (((uint64_t *)base)[i] == find_word(i, seed, mask)) continue;
        found[0]++;
        found[1] = i < found[1] ? i : found[1];
    }
    return find_duration(which, "memory", words * 8);
}

static void multiply(uint32_t first, uint32_t rounds, uint64_t *sum) {
    int8_t rows[8][16], columns[8][16];
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t row = (first + lane) * 0x9E3779B1u, column = (first + lane) * 0x85EBCA77u;
        memcpy(&rows[lane / 4][lane % 4 * 4], &row, 4);
        memcpy(&columns[lane / 4][lane % 4 * 4], &column, 4);
    }
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) {
            int32_t product = 0;
            for (int k = 0; k < 16; k++) product += rows[r][k] * columns[c][k];
            *sum += (uint32_t)product * rounds;
        }
}

static uint64_t sum_up(device which, unsigned blocks, void **arguments) {
    uint64_t *records = *(uint64_t **)arguments[0], plain = 0, weighted = 0, tensor = 0;
    uint32_t turns = *(uint32_t *)arguments[1], rounds = *(uint32_t *)arguments[2], seed = *(uint32_t *)arguments[3];
    uint64_t nanoseconds = (uint64_t)rounds * 1000, mhz = fake_number("FAKE_CUDA_MHZ", 1980);
    uint64_t missing = is_faulty(which) ? fake_number("FAKE_CUDA_MISSING_SM", NO_SM) : NO_SM;
    uint64_t wrong = is_faulty(which) ? fake_number("FAKE_CUDA_WRONG_SM", NO_SM) : NO_SM;
    for (uint32_t thread = 0; thread < THREADS; thread++) {
        uint32_t x = thread + seed, y = 0;
        for (uint32_t turn = 0; turn < turns; turn++) {
            x = x * 1664525u + 1013904223u;
            y = (y << 5 | y >> 27) ^ x;
        }
        plain += ((uint64_t)x << 32 | y) * rounds;
        weighted += ((uint64_t)x << 32 | y) * ((uint64_t)rounds * (rounds + 1) / 2);
        if (thread % 32 == 0) multiply(thread + seed, rounds, &tensor);
    }
    for (unsigned block = 0; block < blocks; block++) {
        uint64_t sm = block % SMS == missing ? (missing + 1) % SMS : block % SMS;
        uint64_t record[] = {sm, plain + (sm == wrong), weighted, tensor, nanoseconds * mhz / 1000, nanoseconds};
        memcpy(records + 6 * block, record, sizeof record);
    }
    return nanoseconds;
}

static const char *const names[] = {"fill_pattern", "check_pattern", "checksum"};

int proof_find(const char *name) {
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) return i + 1;
    return 0;
}

/* The work of a kernel, and how long the device takes for it. */
uint64_t proof_run(int kernel, device which, unsigned blocks, void **arguments) {
    uint64_t began = launch_now(), nanoseconds = kernel == 1   ? fill(which, arguments)
                                                 : kernel == 2 ? check(which, arguments)
                                                               : sum_up(which, blocks, arguments);
    launch_forget(launch_now() - began);
    return nanoseconds;
}

static result copy(device which, const char *place, address to, address from, size_t bytes) {
    uint64_t began = launch_now();
    memcpy((void *)to, (const void *)from, bytes);
    if (bytes > 4096) spoil(which, place, to, bytes);
    launch_forget(launch_now() - began);
    launch_add(find_duration(which, place, bytes));
    return SUCCESS;
}

EXPORT result cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    BEGIN;
    (void)flags;
    REQUIRE(at && context_current(), INVALID_VALUE);
    *at = malloc(bytes);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT result cuMemFreeHost(void *at) {
    BEGIN;
    free(at);
    return SUCCESS;
}

EXPORT result cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    BEGIN;
    (void)stream;
    REQUIRE(context_current(), INVALID_CONTEXT);
    return copy(context_current()->device, "to", to, (address)from, bytes);
}

EXPORT result cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    BEGIN;
    (void)stream;
    REQUIRE(context_current(), INVALID_CONTEXT);
    return copy(context_current()->device, "from", (address)to, from, bytes);
}

EXPORT result cuMemcpyPeerAsync(address to, struct context *of, address from, struct context *other, size_t bytes,
                                void *stream) {
    BEGIN;
    (void)stream, (void)of;
    REQUIRE(other && context_current(), INVALID_CONTEXT);
    return copy(other->device, other == context_current() ? "peer" : "back", to, from, bytes);
}

EXPORT result cuDeviceCanAccessPeer(int *can, device which, device peer) {
    BEGIN;
    REQUIRE(can, INVALID_VALUE);
    REQUIRE_DEVICE(which);
    REQUIRE_DEVICE(peer);
    *can = which != peer;
    return SUCCESS;
}

EXPORT result cuCtxEnablePeerAccess(struct context *peer, unsigned flags) {
    BEGIN;
    REQUIRE(peer && flags == 0, INVALID_VALUE);
    return SUCCESS;
}

EXPORT result cuGetErrorName(int code, const char **name) {
    REQUIRE(name, INVALID_VALUE);
    *name = code == 700   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == 46  ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
            : code == 999 ? "CUDA_ERROR_UNKNOWN"
                          : NULL;
    return *name ? SUCCESS : INVALID_VALUE;
}
