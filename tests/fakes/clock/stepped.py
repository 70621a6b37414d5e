"""The hand on the stepped clock: compiles its library once, and says how far off the time is."""

import fcntl
import hashlib
import mmap
import struct
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent
_SOURCE = _HERE / "stepped.c"
_FORM = struct.Struct("=q")


def build_library(build_directory: Path = _HERE / "build") -> Path:
    """The library to preload; compiled if need be."""
    source = _SOURCE.read_bytes()
    directory = build_directory / hashlib.sha256(source).hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "stepped.so"
    with (directory / "lock").open("w") as lock:  # several test processes may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            draft = directory / "stepped.so.new"
            command = ["cc", "-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
            subprocess.run([*command, "-o", draft, _SOURCE], check=True)
            draft.rename(library)
    return library


class SteppedClock:
    """One wall clock, shared by all processes that are started with its environment."""

    def __init__(self, directory: Path) -> None:
        path = directory / "clock"
        path.write_bytes(_FORM.pack(0))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FORM.size)
        self.environment = {"LD_PRELOAD": str(build_library()), "NODEAGENT_STEPPED_CLOCK": str(path)}
        """What a process needs to live by this clock."""

    def set_ahead(self, seconds: float) -> None:
        """From now on the time is this much later than the machine's; earlier, where it is negative."""
        _FORM.pack_into(self._memory, 0, round(seconds * 1e9))

    def close(self) -> None:
        """The processes keep theirs."""
        self._memory.close()
