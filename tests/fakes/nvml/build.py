"""Compiles the fake library, once for each content of its sources and each set of hidden symbols.

An old driver is the same library with newer symbols hidden, so that the real loader says "undefined symbol".
"""

import fcntl
import hashlib
import re
import subprocess
from collections.abc import Collection
from pathlib import Path

from tests.fakes.nvml import abi

SONAME = "libnvidia-ml.so.1"
_HERE = Path(__file__).parent
_FLAGS = (
    "-shared",
    "-fPIC",
    "-O1",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    f"-Wl,-soname,{SONAME}",
)
_EXPORTED = re.compile(r"^(?:EXPORT [a-z* ]+?\*?|(?:GET_\w+|LIST)\()(nvml\w+)", re.MULTILINE)


def list_functions() -> list[str]:
    """The names of all functions that the fake implements, sorted as C's strcmp sorts."""
    names = {name for source in _list_sources() for name in _EXPORTED.findall(source.read_text())}
    return sorted(names)


def build_library(hidden: Collection[str] = (), build_directory: Path = _HERE / "build") -> Path:
    """Return the directory that holds `libnvidia-ml.so.1` without the hidden symbols; compile it if need be."""
    header = abi.render_header()
    digest = hashlib.sha256("\0".join([header, *_FLAGS, *sorted(hidden)]).encode())
    for source in [*_list_sources(), _HERE / "src" / "fake.h"]:
        digest.update(source.read_bytes())
    directory = build_directory / digest.hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:  # several test processes may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / SONAME).exists():
            _compile(directory, header, hidden)
    return directory


def _list_sources() -> list[Path]:
    return sorted((_HERE / "src").glob("*.c"))


def _compile(directory: Path, header: str, hidden: Collection[str]) -> None:
    (directory / "generated.h").write_text(header)
    local = " ".join(f"{name};" for name in sorted(hidden))
    (directory / "symbols.map").write_text(f"{{ global: *; {f'local: {local}' if local else ''} }};\n")
    output = directory / f"{SONAME}.new"
    command = [
        "cc",
        *_FLAGS,
        f"-I{directory}",
        f"-I{_HERE / 'src'}",
        f"-Wl,--version-script,{directory / 'symbols.map'}",
    ]
    subprocess.run([*command, "-o", str(output), *map(str, _list_sources()), "-lpthread"], check=True)
    output.replace(directory / SONAME)
