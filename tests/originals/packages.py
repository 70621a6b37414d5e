"""The packages of `requirements/originals.txt`: NVIDIA's drivers 535 and 550, but for their kernel modules.

A driver is a root directory of its own in the cache: all of its packages, unpacked. No maintainer script was run, so
libraries and most programs lie where Debian keeps alternatives (`usr/lib/*/nvidia/current`, `usr/lib/nvidia/current`).
"""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.files.cache import find_cache

PINS: Final = Path(__file__).parents[2] / "requirements/originals.txt"
DRIVERS: Final = ("535", "550")
MACHINE: Final = "x86_64"
"""Pinned are packages of this processor alone."""
REASON: Final = "wants NVIDIA's own programs: make originals"
PROGRAMS: Final = Path("usr/lib/nvidia/current")
LIBRARIES: Final = Path("usr/lib/x86_64-linux-gnu/nvidia/current")


@dataclass(frozen=True, slots=True)
class Package:
    driver: str
    suite: str
    """The release of Debian that has it."""
    name: str
    version: str
    sha256: str

    def render(self) -> str:
        """Its line in the pins."""
        return f"{self.driver} {self.suite} {self.name} {self.version} {self.sha256}"


def read_pins(text: str) -> tuple[Package, ...]:
    """The pinned packages; comments and empty lines are none."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return tuple(Package(*words) for words in lines if words)


def list_packages(driver: str) -> tuple[Package, ...]:
    return tuple(package for package in read_pins(PINS.read_text()) if package.driver == driver)


def find_root(driver: str, packages: Sequence[Package]) -> Path:
    key = hashlib.sha256("\n".join(package.render() for package in packages).encode()).hexdigest()[:16]
    return find_cache() / "originals" / f"{driver}-{key}"


def find_driver(driver: str) -> Path | None:
    """The root directory of a driver, `None` where nobody has fetched it."""
    root = find_root(driver, list_packages(driver))
    return root if platform.machine() == MACHINE and root.is_dir() else None


def find_program(driver: str, name: str) -> Path | None:
    root = find_driver(driver)
    return (
        None
        if root is None
        else next((path for path in (root / PROGRAMS / name, root / "usr/bin" / name) if path.is_file()), None)
    )


def find_library(driver: str, name: str) -> Path | None:
    """A library of a driver, by the name that programs ask for (`libcuda.so.1`)."""
    root = find_driver(driver)
    return None if root is None or not (root / LIBRARIES / name).exists() else root / LIBRARIES / name
