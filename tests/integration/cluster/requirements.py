"""Can this machine run the real cluster? Names everything that is missing, at once, with the way to get it.

Owns the list of needs. Installs nothing: that is `.ci/e2e` (or a person).
"""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.integration.cluster.errors import RequirementsMissing

PACKAGES = {
    "runc": "runc",
    "busybox": "busybox-static",
    "openssl": "openssl",
    "mount": "mount",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
ELF_INTERPRETER = 3  # program header type PT_INTERP: present in every dynamically linked program


def require_cluster_machine() -> None:
    """Return quietly where the cluster can run.

    Raises:
        RequirementsMissing: names each thing that is missing.
    """
    missing = find_missing(shutil.which, is_root=os.geteuid() == 0, read=lambda path: Path(path).read_bytes())
    if missing:
        raise RequirementsMissing(missing)


def find_missing(which: Callable[[str], str | None], *, is_root: bool, read: Callable[[str], bytes]) -> tuple[str, ...]:
    """Everything the cluster needs and `which` does not find; empty when it can run."""
    missing = [] if is_root else ["root (the kubelet mounts and containerd starts containers: run it as root)"]
    if which("go") is None:
        missing.append(
            "Go (the programs are built from their modules: install Go 1.21 or newer, it fetches the pinned release by itself)"
        )
    if which("cc") is None and which("gcc") is None:
        missing.append("a C compiler (the stand-in driver library is built with it: apt-get install gcc libc6-dev)")
    missing += [
        f"{program} (apt-get install {package})" for program, package in PACKAGES.items() if which(program) is None
    ]
    busybox = which("busybox")
    if busybox is not None and not is_static_elf(read(busybox)):
        missing.append("a static busybox (it is the whole content of the test image: apt-get install busybox-static)")
    return tuple(missing)


def is_static_elf(program: bytes) -> bool:
    """Whether a 64-bit ELF program runs without a loader; anything else is not one."""
    if program[:5] != b"\x7fELF\x02":
        return False
    order = "<" if program[5] == 1 else ">"
    (offset,) = struct.unpack_from(order + "Q", program, 0x20)
    size, count = struct.unpack_from(order + "HH", program, 0x36)
    kinds = (struct.unpack_from(order + "I", program, offset + index * size)[0] for index in range(count))
    return ELF_INTERPRETER not in kinds
