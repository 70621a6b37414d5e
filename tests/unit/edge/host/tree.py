"""A host made of files: as much of /proc, /sys and /dev as a test wants."""

import struct
from collections.abc import Iterable
from pathlib import Path

from tests.support.files.file_tree import FileTree

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"
    "GCC version:  gcc version 12.3.0\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (builder@host)  Sun Jul 27\n"
    "GCC version:  gcc version 13.3.0\n"
)
DEVICES = """Character devices:
  1 mem
195 nvidia
195 nvidia-modeset
195 nvidiactl
508 nvidia-uvm
510 nvidia-caps

Block devices:
  7 loop
 195 nvidia-nonsense
"""


class HostTree(FileTree):
    """A fake host below one directory."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for name in ("proc", "sys", "dev"):
            (root / name).mkdir(parents=True)

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    def load_module(self, version: str = "580.65.06") -> None:
        self.write("sys/module/nvidia/version", f"{version}\n")
        self.write("sys/module/nvidia/refcnt", "12\n")
        self.write("proc/driver/nvidia/version", OPEN.replace("580.65.06", version))
        self.write("proc/devices", DEVICES)

    def unload_module(self) -> None:
        for path in ("sys/module/nvidia/version", "sys/module/nvidia/refcnt", "proc/driver/nvidia/version"):
            (self.root / path).unlink()
        (self.root / "sys/module/nvidia").rmdir()

    def add_function(
        self,
        address: str,
        *,
        vendor: str = "0x10de",
        pci_class: str = "0x030200",
        device: str = "0x2330",
        driver: str = "",
        numa_node: str = "0",
        config: bytes = b"\xde\x10\x30\x23",
    ) -> Path:
        place = f"sys/bus/pci/devices/{address}"
        for name, value in (("vendor", vendor), ("class", pci_class), ("device", device), ("numa_node", numa_node)):
            self.write(f"{place}/{name}", f"{value}\n")
        self.write(f"{place}/config", config)
        if driver:
            self.link(f"{place}/driver", f"../../../../bus/pci/drivers/{driver}")
        return self.root / place

    def install_library(self, root: str = "", version: str = "580.65.06", name: str = "libnvidia-ml") -> Path:
        directory = f"{root}usr/lib/x86_64-linux-gnu"
        real = self.write(f"{directory}/{name}.so.{version}", "ELF")
        self.link(f"{directory}/{name}.so.1", real.name)
        return real


def encode_new_cache(entries: Iterable[tuple[int, str, str, int]], *, order: str = "<") -> bytes:
    """The newer format of ld.so.cache: (flags, name, path, hwcap) each."""
    rows = list(entries)
    strings = b""
    body = b""
    strings_at = 48 + 24 * len(rows)
    for flags, name, path, hwcap in rows:
        name_at = strings_at + len(strings)
        strings += name.encode() + b"\0"
        body += struct.pack(f"{order}iIIIQ", flags, name_at, strings_at + len(strings), 0, hwcap)
        strings += path.encode() + b"\0"
    header = b"glibc-ld.so.cache1.1" + struct.pack(f"{order}II", len(rows), len(strings))
    return header + bytes([2 if order == "<" else 3]) + bytes(19) + body + strings


def encode_old_cache(entries: Iterable[tuple[int, str, str]]) -> bytes:
    """The older format: (flags, name, path) each, with offsets that count from the end of the entries."""
    rows = list(entries)
    strings = b""
    body = b""
    for flags, name, path in rows:
        name_at = len(strings)
        strings += name.encode() + b"\0"
        body += struct.pack("<iII", flags, name_at, len(strings))
        strings += path.encode() + b"\0"
    return b"ld.so-1.7.0\0" + struct.pack("<I", len(rows)) + body + strings
