"""Can this machine run the real cluster? Names everything that is missing, at once, with the way to get it.

Owns the list of needs. Installs nothing: that is `.ci/e2e` (or a person).
"""

import dataclasses
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.integration.cluster.errors import RequirementsMissing

PACKAGES = {
    "cc": "gcc libc6-dev",
    "runc": "runc",
    "busybox": "busybox-static",
    "debootstrap": "debootstrap",
    "systemctl": "systemd",
    "dpkg-deb": "dpkg",
    "openssl": "openssl",
    "mount": "mount",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
NAMES = {"cc": "a C compiler", "busybox": "a static busybox"}  # busybox alone is the whole content of the test image
ELF_INTERPRETER = 3  # program header type PT_INTERP: present in every dynamically linked program


@dataclasses.dataclass(frozen=True, slots=True)
class Missing:
    """What a machine lacks: in words for people, and as the Debian packages that would help."""

    words: tuple[str, ...]
    packages: tuple[str, ...]


def require_cluster_machine() -> None:
    """Return quietly where the cluster can run.

    Raises:
        RequirementsMissing: names each thing that is missing.
    """
    missing = read_missing()
    if missing.words:
        raise RequirementsMissing(missing.words)


def read_missing() -> Missing:
    """What this machine lacks."""
    return find_missing(shutil.which, is_root=os.geteuid() == 0, read=lambda path: Path(path).read_bytes())


def find_missing(which: Callable[[str], str | None], *, is_root: bool, read: Callable[[str], bytes]) -> Missing:
    """Everything the cluster needs and `which` does not find; empty when it can run."""
    absent = [program for program in PACKAGES if which(program) is None]
    busybox = which("busybox")
    if busybox is not None and not is_static_elf(read(busybox)):
        absent.append("busybox")
    words = [] if is_root else ["root (the kubelet mounts and containerd starts containers: run it as root)"]
    if which("go") is None:
        words.append("Go (install Go 1.21 or newer: the programs are built from their modules with the pinned release)")
    words += [f"{NAMES.get(program, program)} (apt-get install {PACKAGES[program]})" for program in absent]
    packages = {package for program in absent for package in PACKAGES[program].split()}
    return Missing(tuple(words), tuple(sorted(packages)))


def is_static_elf(program: bytes) -> bool:
    """Whether a 64-bit ELF program runs without a loader; anything else is not one."""
    if program[:5] != b"\x7fELF\x02":
        return False
    order = "<" if program[5] == 1 else ">"
    (offset,) = struct.unpack_from(order + "Q", program, 0x20)
    size, count = struct.unpack_from(order + "HH", program, 0x36)
    kinds = (struct.unpack_from(order + "I", program, offset + index * size)[0] for index in range(count))
    return ELF_INTERPRETER not in kinds
