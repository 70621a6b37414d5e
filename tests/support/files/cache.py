"""Where tests keep what takes long to make or to fetch: outside the checkout, between runs."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "NODEAGENT_CACHE"


def find_cache() -> Path:
    """The cache's own folder: $NODEAGENT_CACHE, else `nodeagent` below the user's cache directory."""
    chosen = os.environ.get(CACHE_VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(home) / "nodeagent"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Two runs on one machine make a thing once: the second waits, then finds everything made."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
