"""Finds the driver's 32-bit libraries, which no specification has.

Owns the directories of 32-bit libraries in all distributions.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.edge.host.driver.library_search import CURRENT
from nodeagent.edge.host.driver.roots import follow_in_root
from nodeagent.edge.host.files.pseudo_file import list_names

_DIRECTORIES: Final = ("usr/lib/i386-linux-gnu", f"usr/lib/i386-linux-gnu/{CURRENT}", "usr/lib32", "lib32", "usr/lib")
"""`/usr/lib` is the directory of 32-bit libraries where 64-bit libraries lie in `/usr/lib64`."""
_ELF32: Final = b"\x7fELF\x01"


def list_libraries32(root: Path, version: str) -> tuple[str, ...]:
    """The 32-bit libraries of this version of the driver, as paths below the driver's root."""
    return tuple(_list_libraries(root, version)) if version else ()


def _list_libraries(root: Path, version: str) -> Iterator[str]:
    for place in _DIRECTORIES:
        directory = follow_in_root(root, place)
        for name in list_names(directory) if directory is not None else ():
            path = f"/{place}/{name}"
            real = follow_in_root(root, path)
            if name.startswith("lib") and name.endswith(f".so.{version}") and real is not None and _is_32_bit(real):
                yield f"/{real.relative_to(root)}"


def _is_32_bit(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_ELF32)) == _ELF32
    except OSError:
        return False
