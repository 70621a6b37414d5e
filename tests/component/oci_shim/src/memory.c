/* Stands for the shim's memory: one block for each piece, so that a sanitizer sees where it ends. The piece whose number
 * is in SHIM_REFUSE_ALLOCATION is refused. */
#include <stdio.h>

#include "shim.h"

void *take(size_t size) {
    static unsigned long taken;
    const char *refused = getenv("SHIM_REFUSE_ALLOCATION");
    bool is_refused = ++taken == (refused ? strtoul(refused, NULL, 10) : 0) || size > MEMORY_LIMIT;
    void *place = is_refused ? NULL : calloc(1, size);
    if (place) return place;
    fputs("nodeagent-oci-shim: no memory\n", stderr);
    exit(1);
}

void *grow(void *old, size_t room, size_t size) {
    void *fresh = take(size);
    return room ? memcpy(fresh, old, room) : fresh;
}
