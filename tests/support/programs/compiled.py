"""Programs and libraries in C for tests, compiled once for each content of their sources and each set of flags."""

import fcntl
import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

BASE = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g")


def compile_once(
    folder: Path, name: str, sources: Iterable[Path], flags: Sequence[str], *, besides: Iterable[Path] = ()
) -> Path:
    """The compiled file, in a folder of its own below `folder`; `besides` are what the sources include or need."""
    sources = list(sources)
    digest = hashlib.sha256("\0".join([name, *BASE, *flags]).encode())
    for path in [*sources, *besides]:
        digest.update(path.read_bytes())
    place = folder / digest.hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:  # several test processes may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / name).exists():
            command = ["cc", *BASE, *map(str, sources), *flags, "-o", str(place / f"{name}.new")]
            subprocess.run(command, check=True)
            (place / f"{name}.new").replace(place / name)
    return place / name
