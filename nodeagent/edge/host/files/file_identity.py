"""By what a file differs from another file of the same name, and from itself before a change."""

import os
from pathlib import Path


def identify(path: Path | str, *, follow_symlink: bool = True) -> tuple[int, ...]:
    """Equal while content, owner and mode of the file stay the same; empty without a file."""
    try:
        status = os.stat(path, follow_symlinks=follow_symlink)  # noqa: PTH116  # done all the time; a path object's own method costs more
    except (OSError, ValueError):
        return ()
    return (status.st_dev, status.st_ino, status.st_rdev, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
