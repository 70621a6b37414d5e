"""The hand on another clock: compiles its library once, and says how far off the time is and how fast it runs."""

import fcntl
import hashlib
import mmap
import struct
import subprocess
import time
from pathlib import Path

_HERE = Path(__file__).parent
_SOURCE = _HERE / "other.c"
_FORM = struct.Struct("=qqq")
_AHEAD = struct.Struct("=q")


def build_library(build_directory: Path = _HERE / "build") -> Path:
    """The library to preload; compiled if need be."""
    source = _SOURCE.read_bytes()
    directory = build_directory / hashlib.sha256(source).hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "other.so"
    with (directory / "lock").open("w") as lock:  # several test processes may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            draft = directory / "other.so.new"
            command = ["cc", "-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
            subprocess.run([*command, "-o", draft, _SOURCE], check=True)
            draft.rename(library)
    return library


class OtherClock:
    """One clock for all processes that are started with its environment, `speed` times as fast as the world's."""

    def __init__(self, directory: Path, *, speed: int = 1) -> None:
        path = directory / "clock"
        path.write_bytes(_FORM.pack(0, time.monotonic_ns(), speed))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)
        self.environment = {"LD_PRELOAD": str(build_library()), "NODEAGENT_OTHER_CLOCK": str(path)}
        """What a process needs to live by this clock."""

    def set_ahead(self, seconds: float) -> None:
        """From now on people's time is so much later than the machine's; earlier, where it is negative."""
        _AHEAD.pack_into(self._memory, 0, round(seconds * 1e9))

    def close(self) -> None:
        self._memory.close()
