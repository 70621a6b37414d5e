"""How the C library keeps this process's memory: in one heap, and large blocks by themselves, given back when freed.

Left alone, glibc has a heap for every thread, up to eight for each processor, and what one of them has free is of no
use to the others. And it takes the first large block that is freed as a sign to cut all later ones from these heaps:
now and then the interpreter moves its table of interned strings, 2 MB in the agent, which left a hole as large in one
heap after the other. Threads that wait for the interpreter's lock anyway lose nothing by sharing a heap.
Refuses to matter: a library without these switches is left as it is.
"""

import ctypes

LARGE_BYTES = 1024 * 1024
"""Beyond what any request or scrape is made of, so that nothing frequent pays for its own mapping."""
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8


def keep_heap_small() -> bool:
    """For the rest of this process, which has no other threads yet; whether the library knows how to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_ARENA_MAX, 1) == mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES) == 1
