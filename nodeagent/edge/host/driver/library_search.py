"""The search for a shared library of the driver below a driver root, for the agent and for the GPU worker alike.

Owns the places that the field's tools share, and after them the root's own linker cache, so that all parts of the
agent find the same libraries. Links are followed as by a process with the root as its `/`.
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
"""Library directories of all distributions."""

CURRENT = "nvidia/current"
"""Subdirectory in which Debian's packages keep a driver beside others."""

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
    """The regular file at the end of the links; `None` for another kind of file."""
    place = follow(root, path, may_lack=False)
    return place if place is not None and _is_file(place) else None


def follow(root: str, path: str, *, may_lack: bool) -> str | None:
    """The path at the end of the links; `None` for links in a circle, or to a missing file that may not be lacking."""
    # Plain strings, because a probe of the driver comes here two hundred times: path objects took 25 ms.
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
            # No link; a name with a NUL is no link either, and exists nowhere.
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
