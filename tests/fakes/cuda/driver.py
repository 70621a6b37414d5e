"""The fake `libcuda.so.1`: compiled once, set up by the environment of a program, its account read here."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.programs.compiled import compile_once

SONAME: Final = "libcuda.so.1"
GIB: Final = 1 << 30
NOTHING_WRITTEN: Final = -1
HANGS: Final = -2
CRASHES: Final = -3
_HERE: Final = Path(__file__).parent
# Its own calls and addresses stay its own, whoever else has symbols of these names.
_FLAGS: Final = (
    "-shared",
    "-fPIC",
    "-O1",
    "-fvisibility=hidden",
    "-Wl,-Bsymbolic",
    f"-Wl,-soname,{SONAME}",
    "-pthread",
)
_DEVICES: Final = 16
_PROCESSES: Final = 128
_MOST: Final = struct.Struct(f"<{_DEVICES}Q")
_PROCESS: Final = struct.Struct(f"<QQ{_DEVICES}QQ")


def build_driver() -> Path:
    """The library itself; its directory holds nothing else that a loader would take."""
    sources = sorted((_HERE / "src").glob("*.c"))
    return compile_once(_HERE / "build", SONAME, sources, _FLAGS, besides=[_HERE / "src" / "fake.h"])


@dataclass(frozen=True, slots=True)
class Account:
    """What the driver has given out, whatever anybody else counts."""

    used: Mapping[int, tuple[int, ...]]
    """Bytes of each device, by the pid of each living process."""
    most: tuple[int, ...]
    """The most that all processes had of each device at one moment."""

    busy_ns: Mapping[int, int]
    """How long each living process has had the device work."""

    def sum_used(self, device: int = 0) -> int:
        return sum(each[device] for each in self.used.values())


@dataclass(frozen=True, slots=True)
class FakeDriver:
    """One driver, shared by all programs that are run with its environment."""

    path: Path
    """A directory of the test's own."""
    memory: tuple[int, ...] = (16 * GIB, 16 * GIB)
    """Bytes of each device."""
    context_bytes: int = 0
    """What each context takes of its device."""
    version: int = 12080
    pitch: int = 512
    """What the rows of pitched memory are padded to."""
    pool_step: int = 1
    """What pools grow by."""
    unnamed: str = ""
    """`cuMemAlloc`, where the driver is to give places for it that none of its symbols has."""
    has_everything: bool = False
    """Whether every entry point is found, though what this one lacks does not work."""
    fail: Mapping[str, str] = field(default_factory=dict)
    """By symbol: the code that each call returns, or `CODE@CALL` for one call, counted from 1 in each process.

    `NOTHING_WRITTEN` is success with nothing done; a call that `HANGS` never returns, and `CRASHES` ends the program.
    """
    proves: bool = False
    """Whether its memory holds what is written there, so that the prover's kernels compute."""
    uuids: tuple[str, ...] = ()
    """Of the first devices, as NVML has them."""
    wrong: Mapping[str, int] = field(default_factory=dict)
    """By `memory`, `to`, `from` or `peer`: the word that has a wrong bit after each write, or each such copy."""
    gbps: Mapping[str, float] = field(default_factory=dict)
    """By the same words: the speed, where it is not 1 GB/s."""
    missing_sm: int | None = None
    wrong_sm: int | None = None
    faulty: int | None = None
    """The device that has these faults, and slownesses; all of them by default."""
    faulty_file: Path | None = None
    """A file with a 1 for each device that has them and a 0 for each other one, read whenever a kernel runs."""

    def environ(self) -> dict[str, str]:
        """For programs; the loader finds the library by it."""
        return {
            "LD_LIBRARY_PATH": str(build_driver().parent),
            "FAKE_CUDA_ACCOUNT": str(self.path / "account"),
            "FAKE_CUDA_DEVICES": ",".join(map(str, self.memory)),
            "FAKE_CUDA_CONTEXT_BYTES": str(self.context_bytes),
            "FAKE_CUDA_VERSION": str(self.version),
            "FAKE_CUDA_PITCH": str(self.pitch),
            "FAKE_CUDA_POOL_STEP": str(self.pool_step),
            "FAKE_CUDA_EVERYTHING": str(int(self.has_everything)),
            "FAKE_CUDA_UNNAMED": self.unnamed,
            **self._list_faults(),
            **({"FAKE_CUDA_FAIL": ",".join(f"{name}={code}" for name, code in self.fail.items())} if self.fail else {}),
        }

    def _list_faults(self) -> dict[str, str]:
        said = {
            "FAKE_CUDA_BACKED": "1" if self.proves else "",
            "FAKE_CUDA_UUID": ",".join(uuid.removeprefix("GPU-").replace("-", "") for uuid in self.uuids),
            "FAKE_CUDA_WRONG": ",".join(f"{place}:{word}" for place, word in self.wrong.items()),
            "FAKE_CUDA_GBPS": ",".join(f"{place}={speed}" for place, speed in self.gbps.items()),
            "FAKE_CUDA_MISSING_SM": "" if self.missing_sm is None else str(self.missing_sm),
            "FAKE_CUDA_WRONG_SM": "" if self.wrong_sm is None else str(self.wrong_sm),
            "FAKE_CUDA_FAULTY": "" if self.faulty is None else str(self.faulty),
            "FAKE_CUDA_FAULTY_FILE": "" if self.faulty_file is None else str(self.faulty_file),
        }
        return {name: value for name, value in said.items() if value}

    def read(self) -> Account:
        """The account as it is now; an empty one before a program has started the driver."""
        place = self.path / "account"
        # Whoever is the first makes the file, and then gives it its length.
        content = (place.read_bytes() if place.exists() else b"").ljust(_MOST.size + _PROCESSES * _PROCESS.size, b"\0")
        used, busy = {}, {}
        for number in range(_PROCESSES):
            pid, start, *bytes_used, busy_ns = _PROCESS.unpack_from(content, _MOST.size + number * _PROCESS.size)
            if pid and _read_start(pid) == start:
                used[pid] = tuple(bytes_used)
                busy[pid] = busy_ns
        return Account(used, _MOST.unpack_from(content), busy)


def _read_start(pid: int) -> int | None:
    """None for a process that is gone, or has ended with all its threads and was not waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" and int(fields[17]) <= 1 else int(fields[19])
