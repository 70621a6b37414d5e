"""How the C library keeps the process's memory: in one heap, and large blocks by themselves, given back when freed.

By default glibc has a heap for every thread, up to eight for each processor, and free memory of one heap is of no use
to the others. After the first freed large block glibc also cuts all later large blocks from the heaps: now and then the
interpreter moves the table of interned strings, 2 MB in the agent, and each move left a hole as large in one heap after
the other. Threads wait for the interpreter's lock anyway, so sharing a heap costs them nothing.
With the size of a large block set, glibc gives back free memory over 128 KiB at the end of the heap, only to ask for
the memory again at the next read of a socket, for which asyncio allocates 256 KiB each time: 7 µs of 8 went there.
A library without these switches is left alone.
"""

import ctypes

LARGE_BYTES = 1024 * 1024
"""More than any request or scrape allocates, so that no frequent allocation pays for a mapping."""
SPARE_BYTES = 512 * 1024
"""Free memory allowed at the end of the heap: twice the buffer of a read."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_heap_small() -> bool:
    """Set up the allocator before other threads start; whether the library has the switches."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    requests = ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, LARGE_BYTES), (_M_TRIM_THRESHOLD, SPARE_BYTES))
    made = [mallopt(*request) for request in requests]
    return all(made)
