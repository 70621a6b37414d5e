"""What these tests run: the library, and programs that use it or parts of it."""

import fcntl
import hashlib
import platform
import subprocess
from pathlib import Path
from typing import Final

from tests.support.programs.compiled import compile_once
from tests.support.programs.native import NATIVE

HERE: Final = Path(__file__).parent
VGPU: Final = NATIVE / "vgpu"
LIBRARY: Final = "libnodeagent-vgpu.so"
_SHOWN: Final = ("front.c", "hooks.c", "routing.c", "trampolines.c")
"""What stands in front of others."""


def _list_headers() -> list[Path]:
    return sorted([*VGPU.rglob("*.h"), *(NATIVE / "include").glob("*.h")])


def build_library(*flags: str, machine: str = platform.machine()) -> Path:
    """The library as `make native` makes it, with these flags besides."""
    digest = hashlib.sha256("\0".join([machine, *flags]).encode())
    for path in [NATIVE / "Makefile", *sorted(VGPU.glob("*/*.c")), VGPU / "front/exports.map", *_list_headers()]:
        digest.update(path.read_bytes())
    place = HERE / "build" / digest.hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    target = place / machine / LIBRARY
    command = ["make", "--silent", "-C", str(NATIVE), f"BUILT={place}", f"EXTRA={' '.join(flags)}", str(target)]
    with (place / "lock").open("w") as lock:  # several test processes may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return target


def build_ledger_program(name: str, *flags: str) -> Path:
    """The program of that name, with what the library counts by, and nothing that leads programs to it."""
    sources = [HERE / "src" / f"{name}.c", *(each for each in sorted(VGPU.rglob("*.c")) if each.name not in _SHOWN)]
    return compile_once(
        HERE / "build", name, sources, ("-O2", "-pthread", f"-I{VGPU}", *flags), besides=_list_headers()
    )


def build_program(name: str, *flags: str) -> Path:
    """The program of that name, which knows neither library: as those of containers."""
    return compile_once(HERE / "build", name, [HERE / "src" / f"{name}.c"], ("-O1", "-pthread", *flags, "-ldl"))


def build_small_library(name: str, *flags: str) -> Path:
    """The library of that name, which knows this one as little."""
    return compile_once(
        HERE / "build", f"{name}.so", [HERE / "src" / f"{name}.c"], ("-shared", "-fPIC", *flags, "-ldl")
    )


def build_real_say() -> Path:
    """A program that reads the C library's symbol table."""
    sources = [HERE / "src" / "real_say.c", VGPU / "front/real.c"]
    return compile_once(HERE / "build", "real_say", sources, ("-O2", f"-I{VGPU}", "-ldl"), besides=_list_headers())


_BEFORE_ANYTHING: Final = ("front.c", "hooks.c", "loader.c", "real.c", "trampolines.c")
"""What runs when a sanitizer looks for its own functions, before it has started: it cannot be watched by it."""


def build_sanitized_library(*flags: str) -> Path:
    """The library under a sanitizer, all but the part that finds functions."""
    base = ("-O1", "-fPIC", "-fvisibility=hidden", f"-I{VGPU}")
    first = [VGPU / "front" / name for name in _BEFORE_ANYTHING]
    rest = [path for path in sorted(VGPU.rglob("*.c")) if path not in first]
    found = compile_once(HERE / "build", "front.o", first, (*base, "-r", "-nostdlib"), besides=_list_headers())
    exports = VGPU / "front/exports.map"
    link = ("-shared", "-Wl,-Bsymbolic", f"-Wl,--version-script={exports}", str(found))
    return compile_once(HERE / "build", LIBRARY, rest, (*base, *flags, *link), besides=[*_list_headers(), exports])
