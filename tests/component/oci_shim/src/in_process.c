/* The shim's parsers within one process, where a hundred thousand inputs take seconds: `exit` and the memory are ours.
 *
 * The first byte of an input says what it is: `j` a configuration that is resolved and edited, `t` the body of a table,
 * `a` arguments with a NUL between, `s` what is summed up with the processor's instructions and without. Built for
 * libFuzzer as it is, and with IN_PROCESS_ALONE as a program of its own:
 *   mutate SEED COUNT FILE...    so many inputs made of these files
 *   starve FILE                  this one, with each allocation refused in turn
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "sha256.h"

static jmp_buf ended;
static void **taken;
static size_t taken_count, taken_room, allocation, refused;

/* Stands for `exit` in the shim's sources. */
void shim_exit(int status) __attribute__((noreturn));
void shim_exit(int status) {
    longjmp(ended, status + 1);
}

void *take(size_t size) {
    if (++allocation == refused || size > MEMORY_LIMIT) shim_exit(1);
    if (taken_count == taken_room) {
        taken_room = taken_room ? taken_room * 2 : 1024;
        taken = realloc(taken, taken_room * sizeof *taken);
        if (!taken) abort();
    }
    return taken[taken_count++] = calloc(1, size);
}

void *grow(void *old, size_t room, size_t size) {
    void *fresh = take(size);
    return room ? memcpy(fresh, old, room) : fresh;
}

static void give_back(size_t down_to) {
    while (taken_count > down_to) free(taken[--taken_count]);
    allocation = 0;
}

static Table *find_table(void) {
    static Table table;
    static bool is_read;
    if (!is_read) {
        const char *wrong = table_load(&table, getenv("NODEAGENT_SHIM_DIR"));
        if (wrong) {
            fprintf(stderr, "no table: %s\n", wrong);
            abort();
        }
        is_read = true;
    }
    return &table;
}

static void try_configuration(const char *text, size_t size) {
    Document document = {0};
    if (json_scan(&document, text, size)) return;
    Wish wish = resolve(&document, find_table(), "auto");
    Text changed = {0};
    if (!apply(&document, find_table(), &wish, &changed)) return;
    /* What was written is a configuration again, of the same size but for what was added. */
    Document again = {0};
    if (json_scan(&again, changed.at, changed.size)) abort();
}

static void try_table(const char *body, size_t size) {
    char name[] = "/tmp/in-process-XXXXXX", path[64];
    unsigned char sum[32];
    if (!mkdtemp(name)) abort();
    snprintf(path, sizeof path, "%s/" SHIM_TABLE_FILE, name);
    FILE *file = fopen(path, "wb");
    if (!file) abort();
    sha256(body, size, sum);
    fprintf(file, "%s %d %zu ", SHIM_TABLE_NAME, SHIM_TABLE_VERSION, size);
    for (int each = 0; each < 32; each++) fprintf(file, "%02x", sum[each]);
    fputc('\n', file);
    fwrite(body, 1, size, file);
    fclose(file);
    static Table table;
    if (!setjmp(ended) && !table_load(&table, name)) table_find(&table, "gpu", "0", true);
    remove(path);
    remove(name);
}

static void try_sums(const char *text, size_t size) {
    unsigned char quick[32], plain[32];
    sha256(text, size, quick);
    sha256_plainly(text, size, plain);
    if (memcmp(quick, plain, sizeof quick)) abort();
}

static void try_arguments(const char *text, size_t size) {
    enum { MOST = 64 };
    char *arguments[MOST + 1], *copy = take(size + 1);
    memcpy(copy, text, size);
    size_t count = 0;
    for (size_t at = 0; at < size && count < MOST; at += strlen(copy + at) + 1) arguments[count++] = copy + at;
    arguments[count] = NULL;
    read_arguments(arguments);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (!size) return 0;
    find_table();
    size_t kept = taken_count;
    allocation = 0;
    /* A copy that ends where the input ends, with the NUL that a file is read with. */
    char *text = malloc(size);
    if (!text) abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (!setjmp(ended)) {
        switch (data[0]) {
        case 'j': try_configuration(text, size - 1); break;
        case 't': try_table(text, size - 1); break;
        case 's': try_sums(text, size - 1); break;
        case 'a': try_arguments(text, size - 1); break;
        }
    }
    free(text);
    give_back(kept);
    return 0;
}

#ifdef IN_PROCESS_ALONE
static uint64_t state;

static size_t draw(size_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? (size_t)(state % below) : 0;
}

static unsigned char *load(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    unsigned char *content = malloc((1 << 20) + 64);
    if (!file || !content) exit(2);
    *size = fread(content, 1, 1 << 20, file);
    fclose(file);
    return content;
}

static void mutate(unsigned char *content, size_t *size) {
    static const char PIECES[][8] = {"\"",   "\\u0000", "{",  "}",  "[",    "]", ",",   ":",
                                     "null", "-1e9",    "\t", "\n", "\xff", "=", "all", "MIG-"};
    for (size_t rounds = draw(4) + 1; rounds && *size > 1; rounds--) {
        size_t at = 1 + draw(*size - 1), length = draw(*size - at);
        switch (draw(5)) {
        case 0: content[at] = (unsigned char)draw(256); break;
        case 1: content[at] ^= (unsigned char)(1u << draw(8)); break;
        case 2: *size = at; break;
        case 3:
            memmove(content + at, content + at + length, *size - at - length);
            *size -= length;
            break;
        default: {
            const char *piece = PIECES[draw(sizeof PIECES / sizeof *PIECES)];
            memmove(content + at + strlen(piece), content + at, *size - at);
            memcpy(content + at, piece, strlen(piece));
            *size += strlen(piece);
        }
        }
    }
}

/* How many allocations there are; each of them was refused once. */
static size_t starve(const unsigned char *content, size_t size) {
    LLVMFuzzerTestOneInput(content, size);
    size_t kept = taken_count;
    for (refused = 1;; refused++) {
        volatile bool is_whole = false;
        allocation = 0;
        if (!setjmp(ended)) {
            try_configuration((const char *)content + 1, size - 1);
            is_whole = true;
        }
        give_back(kept);
        if (is_whole) return refused - 1;
    }
}

int main(int count, char **words) {
    size_t size;
    if (count == 3 && !strcmp(words[1], "starve")) {
        unsigned char *content = load(words[2], &size);
        content[size] = 0;
        printf("%zu\n", starve(content, size));
        free(content);
        return 0;
    }
    if (count < 5 || strcmp(words[1], "mutate")) return 2;
    state = strtoull(words[2], NULL, 10) * 2654435761u + 1;
    for (size_t left = strtoull(words[3], NULL, 10); left; left--) {
        unsigned char *content = load(words[4 + left % (size_t)(count - 4)], &size);
        mutate(content, &size);
        LLVMFuzzerTestOneInput(content, size);
        free(content);
    }
    return 0;
}
#endif
