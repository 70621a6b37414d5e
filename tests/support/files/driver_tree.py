"""A driver installation made of files: libraries with the right names and SONAMEs, programs, files for nodes."""

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from tests.support.files.file_tree import FileTree

VERSION = "580.65.06"
LIBRARIES = {
    "libcuda.so": "libcuda.so.1",
    "libnvidia-ml.so": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-allocator.so": "libnvidia-allocator.so.1",
    "libnvidia-glcore.so": f"libnvidia-glcore.so.{VERSION}",
    "libGLX_nvidia.so": "libGLX_nvidia.so.0",
}
"""Stem to SONAME."""

LIBRARY_DIRECTORY = "usr/lib/x86_64-linux-gnu"


def encode_library(soname: str, *, machine: int = 62, order: str = "<", bits: int = 64, kind: int = 3) -> bytes:
    """A shared library that says its name and nothing else."""
    name = soname.encode() + b"\0"
    strings_at, address = 64 + 2 * 56, 0x1000
    strings = b"\0" + name
    dynamic_at = strings_at + len(strings) + (-(strings_at + len(strings)) % 8)
    tags = [(5, address + strings_at), (14, 1)] if soname else [(5, address + strings_at)]
    dynamic = b"".join(struct.pack(f"{order}QQ", *tag) for tag in [*tags, (0, 0)])
    size = dynamic_at + len(dynamic)
    identity = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    header = identity + struct.pack(f"{order}HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack(f"{order}IIQQQQQQ", 1, 4, 0, address, address, size, size, 8)
    dynamic_segment = struct.pack(
        f"{order}IIQQQQQQ", 2, 4, dynamic_at, address + dynamic_at, address + dynamic_at, len(dynamic), len(dynamic), 8
    )
    content = header + load + dynamic_segment + strings
    return content + bytes(dynamic_at - len(content)) + dynamic


def look_at_file(path: Path) -> os.stat_result | None:
    """For finders that are to take plain files for device nodes."""
    return path.stat() if path.is_file() else None


class DriverTree(FileTree):
    """A driver root below one directory, with /dev, /proc and /sys of its own."""

    def install(
        self, version: str = VERSION, *, libraries: dict[str, str] | None = None, directory: str = LIBRARY_DIRECTORY
    ) -> None:
        for stem, soname in (libraries if libraries is not None else LIBRARIES).items():
            real = self.write(f"{directory}/{stem}.{version}", encode_library(soname.replace(VERSION, version)))
            if not soname.endswith(VERSION):
                self.link(f"{directory}/{soname}", real.name)
        self.write("usr/bin/nvidia-smi", "program")

    def add_nodes(self, names: Iterable[str]) -> None:
        """Plain files in place of device nodes, for finders that are told to take them."""
        for name in names:
            self.write(f"dev/{name}")
