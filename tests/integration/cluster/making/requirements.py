"""Can this machine run the real cluster, and the scenarios? Names all that is missing, at once, and how to get it.

Owns the list of needs. Installs nothing: that is `.ci/e2e` (or a person).
"""

import dataclasses
import os
import shutil
import struct
from collections.abc import Callable, Mapping
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
SCENARIOS = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "podman": "podman",
    "musl-gcc": "musl-tools",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "aarch64-linux-musl-gcc": "musl-dev:arm64",
    "dbus-daemon": "dbus",
    "setpriv": "util-linux",
    "pivot_root": "util-linux",
    "apt-cache": "apt",
}
"""What the scenarios want beside the cluster."""
NAMES = {"cc": "a C compiler", "busybox": "a static busybox"}  # busybox alone is the whole content of the test image
ELF_INTERPRETER = 3  # program header type PT_INTERP: present in every dynamically linked program


@dataclasses.dataclass(frozen=True, slots=True)
class Missing:
    """What a machine lacks: in words for people, and as the Debian packages that would help."""

    words: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def command(self) -> str:
        """What installs all of it that can be installed."""
        if not self.packages:
            return ""
        foreign = {package.partition(":")[2] for package in self.packages if ":" in package}
        before = "".join(f"dpkg --add-architecture {each} && apt-get update && " for each in sorted(foreign))
        return f"{before}apt-get install --yes {' '.join(self.packages)}"


def require_cluster_machine() -> None:
    """Return quietly where the cluster can run.

    Raises:
        RequirementsMissing: names each thing that is missing.
    """
    missing = read_missing(PACKAGES)
    if missing.words:
        raise RequirementsMissing(missing.words)


def read_missing(wanted: Mapping[str, str] = PACKAGES | SCENARIOS) -> Missing:
    """What this machine lacks, for all scenarios unless told otherwise."""
    is_root = os.geteuid() == 0
    return find_missing(wanted, shutil.which, is_root=is_root, read=lambda path: Path(path).read_bytes())


def find_missing(
    wanted: Mapping[str, str], which: Callable[[str], str | None], *, is_root: bool, read: Callable[[str], bytes]
) -> Missing:
    """Everything that is wanted, by program and package, and that `which` does not find; empty when all is there."""
    absent = [program for program in wanted if which(program) is None]
    busybox = which("busybox")
    if busybox is not None and not is_static_elf(read(busybox)):
        absent.append("busybox")
    words = [] if is_root else ["root (the kubelet mounts and containerd starts containers: run it as root)"]
    if which("go") is None:
        words.append("Go (install Go 1.21 or newer: the programs are built from their modules with the pinned release)")
    words += [f"{NAMES.get(program, program)} (apt-get install {wanted[program]})" for program in absent]
    packages = {package for program in absent for package in wanted[program].split()}
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
