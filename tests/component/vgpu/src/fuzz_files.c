/*
 * Limits and usage files of any content: whatever lies there, the library neither crashes nor hangs, and what it reads of
 * limits is as the file's checksum says. For clang's libFuzzer; with -DALONE for any compiler, over inputs that are changed
 * at random: fuzz_files SEED INPUTS.
 *
 * An input is two bytes that say where the limits end, then both files. Each is written with the right checksum in place if
 * the first byte is even, so that what lies behind it is reached too.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Nothing is waited for, and each input begins with nothing known. */
static int do_not_wait(const struct timespec *wanted, struct timespec *left) {
    (void)wanted, (void)left;
    return 0;
}

#define nanosleep do_not_wait
#include "ledger/files.c"
#include "ledger/ledger.c"
#undef nanosleep

#include "compute/bucket.h"

static char place[512]; /* within the current directory */

static void write_file(const char *name, const void *content, size_t bytes) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", place, name);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(content, 1, bytes, file) != bytes || fclose(file)) abort();
}

static void forget(void) {
    if (limits_map) munmap((void *)limits_map, sizeof(struct vgpu_limits));
    if (usage_map) munmap(usage_map, sizeof(struct vgpu_usage));
    atomic_store(&limits_map, NULL);
    atomic_store(&usage_map, NULL);
    atomic_store(&own_slot, NULL);
    atomic_store(&status_now, VGPU_STARTING);
    atomic_store(&reason_now, VGPU_FINE);
    atomic_store(&slots_known, 0);
    atomic_store(&next_look_ns, 0);
    atomic_store(&limits_cores, false);
    atomic_store(&read_sequence, NOTHING_READ);
    atomic_store(&tried_sequence, NOTHING_READ);
    memset((void *)memory_limits, 0, sizeof memory_limits);
    memset((void *)core_limits, 0, sizeof core_limits);
}

/* As its writer would: what the checksum is over is left as it came. */
static void sum_up(struct vgpu_limits *limits, struct vgpu_usage *usage) {
    uint64_t sum = create_checksum(VGPU_CHECKSUM_START, &limits->header, offsetof(struct vgpu_limits_header, sequence));
    limits->header.checksum = create_checksum(sum, limits->limits, sizeof limits->limits);
    usage->header.checksum =
        create_checksum(VGPU_CHECKSUM_START, &usage->header, offsetof(struct vgpu_usage_header, checksum));
}

static void use(void) {
    uint8_t uuid[VGPU_UUID_BYTES] = {0};
    static struct ledger_holder holders[VGPU_PROCESSES];
    for (int turn = 0; turn < 2; turn++) {
        enum vgpu_status status = files_look();
        unsigned slot = files_find_slot(uuid);
        if (slot > FILES_NO_SLOT || status > VGPU_REFUSING || status == VGPU_STARTING) abort();
        enum verdict verdict = ledger_reserve(slot, 100);
        if (status == VGPU_LIMITING && verdict == LEDGER_GRANTED && files_memory_limit(slot) < 100) abort();
        if (verdict == LEDGER_GRANTED) ledger_release(slot, 100);
        ledger_used(slot % VGPU_DEVICES);
        if (ledger_list(slot % VGPU_DEVICES, holders) > VGPU_PROCESSES || files_core_limit(slot % VGPU_DEVICES) > 99)
            abort();
        if (bucket_is_limited(slot)) bucket_correct(slot, 0, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *content, size_t bytes) {
    static struct vgpu_limits limits;
    static struct vgpu_usage usage;
    static bool is_placed;
    if (!is_placed && (!getcwd(place, sizeof place - 16) || !mkdtemp(strcat(place, "/fuzz-XXXXXX")) ||
                       setenv(PLACE_VARIABLE, place, 1) != 0))
        abort();
    is_placed = true;
    if (bytes < 2) return 0;
    size_t cut = (size_t)(content[0] | content[1] << 8) % (bytes - 1), rest = bytes - 2 - cut;
    memset(&limits, 0, sizeof limits);
    memset(&usage, 0, sizeof usage);
    memcpy(&limits, content + 2, cut < sizeof limits ? cut : sizeof limits);
    memcpy(&usage, content + 2 + cut, rest < sizeof usage ? rest : sizeof usage);
    if (content[0] % 2 == 0) sum_up(&limits, &usage);
    bool is_whole = content[1] % 8 != 7;
    write_file("limits", &limits, is_whole ? sizeof limits : cut % sizeof limits);
    write_file("usage", &usage, is_whole ? sizeof usage : rest % sizeof usage);
    forget();
    use();
    return 0;
}

#ifdef ALONE
/* Both files as the agent makes them, cut where a change is likely to matter. */
static size_t make_seed(uint8_t *input) {
    struct vgpu_limits limits = {0};
    struct vgpu_usage usage = {0};
    limits.header.magic = VGPU_LIMITS_MAGIC, limits.header.version = VGPU_VERSION;
    limits.header.header_bytes = sizeof limits.header, limits.header.slot_bytes = sizeof limits.limits[0];
    limits.header.slots = 2;
    limits.limits[0].memory_bytes = 1 << 20, limits.limits[0].core_percent = 30;
    limits.limits[0].flags = VGPU_LIMIT_MEMORY | VGPU_LIMIT_CORES, limits.limits[1].uuid[15] = 1;
    usage.header.magic = VGPU_USAGE_MAGIC, usage.header.version = VGPU_VERSION;
    usage.header.header_bytes = sizeof usage.header, usage.header.process_bytes = sizeof usage.slots[0];
    usage.header.processes = VGPU_PROCESSES, usage.header.devices = VGPU_DEVICES;
    size_t cut = sizeof limits, of_usage = sizeof usage.header + 4 * sizeof usage.slots[0];
    memcpy(input + 2, &limits, cut);
    memcpy(input + 2 + cut, &usage, of_usage);
    input[0] = (uint8_t)cut, input[1] = (uint8_t)(cut >> 8);
    return 2 + cut + of_usage;
}

int main(int count, char **words) {
    static uint8_t input[1 << 16];
    if (count != 3) return 2;
    unsigned random = (unsigned)atoi(words[1]);
    for (int left = atoi(words[2]); left > 0; left--) {
        size_t bytes = make_seed(input);
        for (unsigned changes = (unsigned)rand_r(&random) % 6; changes > 0; changes--) {
            size_t within = rand_r(&random) % 2 ? bytes : 400;
            input[2 + (size_t)rand_r(&random) % (within - 2)] = (uint8_t)(rand_r(&random) % 3 ? rand_r(&random) : 255);
        }
        LLVMFuzzerTestOneInput(input, bytes);
    }
    return 0;
}
#endif
