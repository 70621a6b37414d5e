"""How the C library treats large blocks of memory: each by itself, given back to the system when it is freed.

Left alone, glibc takes the first large block that is freed as a sign to cut all later ones from its heaps, of which
every thread may have one. Now and then the interpreter moves its table of interned strings, 2 MB in the agent, and a
hole as large stayed behind, in one heap after the other. Refuses to matter: a library without such a switch is left as
it is.
"""

import ctypes

LARGE_BYTES = 1024 * 1024
"""Beyond what any request or scrape is made of, so that nothing frequent pays for its own mapping."""
_M_MMAP_THRESHOLD = -3


def keep_large_blocks_apart() -> bool:
    """For the rest of this process; whether the library knows how to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES) == 1
