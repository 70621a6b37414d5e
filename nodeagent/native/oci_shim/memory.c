/* Memory that nobody gives back, because the program becomes another within milliseconds.
 *
 * The C library's `malloc` keeps each size in pages of its own; here a page that is touched for the first time costs
 * more than what is done in it, so what is small lies side by side. What is larger can grow without a copy. */
#define _GNU_SOURCE /* mremap */
#include "shim.h"

#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK = 256 << 10, SMALL = CHUNK / 8 };

static void *need(void *place) {
    static const char said[] = "nodeagent-oci-shim: no memory\n";
    if (place != MAP_FAILED) return place;
    /* Without memory for a message: the line is fixed, and the log that is named in the arguments stays silent. */
    write(STDERR_FILENO, said, sizeof said - 1);
    exit(1);
}

static void *map(size_t size) {
    int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    return need(size > MEMORY_LIMIT ? MAP_FAILED : mmap(NULL, size, protection, flags, -1, 0));
}

void *take(size_t size) {
    static char *chunk;
    static size_t left;
    size = (size + 15) & ~(size_t)15;
    if (size > SMALL) return map(size);
    if (size > left) {
        chunk = map(CHUNK);
        left = CHUNK;
    }
    char *place = chunk;
    chunk += size;
    left -= size;
    return place;
}

void *grow(void *old, size_t room, size_t size) {
    if (room > SMALL) return need(size > MEMORY_LIMIT ? MAP_FAILED : mremap(old, room, size, MREMAP_MAYMOVE));
    void *fresh = take(size);
    return room ? memcpy(fresh, old, room) : fresh;
}
