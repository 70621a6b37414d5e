"""How the C library keeps this process's memory: in one heap, and large blocks by themselves, given back when freed.

Left alone, glibc has a heap for every thread, up to eight for each processor, and what one of them has free is of no
use to the others. And it takes the first large block that is freed as a sign to cut all later ones from these heaps:
now and then the interpreter moves its table of interned strings, 2 MB in the agent, which left a hole as large in one
heap after the other. Threads that wait for the interpreter's lock anyway lose nothing by sharing a heap.
And once told where large begins, it gives back whatever more than 128 KiB are free at the end of its heap, only to ask
for them again at the next read of a socket, for which asyncio has 256 KiB made each time: 7 µs of 8 were that.
Refuses to matter: a library without these switches is left as it is.
"""

import ctypes

LARGE_BYTES = 1024 * 1024
"""Beyond what any request or scrape is made of, so that nothing frequent pays for its own mapping."""
SPARE_BYTES = 512 * 1024
"""What may be free at the heap's end: twice what a read asks for."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_heap_small() -> bool:
    """For the rest of this process, which has no other threads yet; whether the library knows how to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wishes = ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, LARGE_BYTES), (_M_TRIM_THRESHOLD, SPARE_BYTES))
    made = [mallopt(*wish) for wish in wishes]
    return all(made)
