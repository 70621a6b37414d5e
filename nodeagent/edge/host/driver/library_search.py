"""Where a shared library of the driver lies below a driver root: the one search, for the agent and for the GPU worker.

Owns the places that the field's tools share, and after them the root's own linker cache, so that whatever one part of
the agent finds the others find too. Links are followed as a process would for which the root is `/`.
Refuses every import that the GPU worker would pay for; a linker cache is read only where the usual places have nothing.
"""

import os
import stat

DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
"""Those of all distributions."""

CURRENT = "nvidia/current"
"""Below them, where Debian's packages keep a driver beside others."""

LIBRARY_PLACES = tuple([f"{directory}{below}" for directory in DIRECTORIES for below in ("", f"/{CURRENT}")])

_LINKS_LIMIT = 40


def search_library(root: str, name: str) -> str | None:
    """The real file of a library below the root: in the usual places, else by the root's own linker cache."""
    for place in LIBRARY_PLACES:
        if found := resolve(root, f"{place}/{name}"):
            return found
    cache = resolve(root, "etc/ld.so.cache")
    if cache is None:
        return None
    from nodeagent.edge.host.driver.ldcache import find_cached  # noqa: PLC0415 - the GPU worker does without it, nearly always

    found_there = (resolve(root, path) for path in find_cached(cache, name))
    return next((path for path in found_there if path is not None), None)


def resolve(root: str, path: str) -> str | None:
    """Where links lead, if that is a regular file."""
    place = follow(root, path, may_lack=False)
    return place if place is not None and _is_file(place) else None


def follow(root: str, path: str, *, may_lack: bool) -> str | None:
    """Where the links lead; `None` when they lead in a circle, or to what is not there and may not be lacking."""
    # Plain strings, because a look at a driver comes here two hundred times: with path objects it took 25 ms.
    base = root.rstrip("/")
    place = base
    pending = _split(path)
    links_left = _LINKS_LIMIT
    while pending:
        part = pending.pop(0)
        if part == "..":
            # Like the kernel's own `/..`, the root is its own parent.
            place = place if place == base else place.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{place}/{part}")
        except (OSError, ValueError) as error:
            if not may_lack and isinstance(error, FileNotFoundError):
                return None
            # No link; a name with a NUL in it is none either, and is nowhere.
            place = f"{place}/{part}"
            continue
        links_left -= 1
        if not links_left:
            return None
        place = base if target.startswith("/") else place
        pending[:0] = _split(target)
    return place or "/"


def _is_file(place: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(place).st_mode)
    except (OSError, ValueError):
        return False


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]
