"""`python -m tests.shake.gpu_machine COMMAND…`: runs a command on this machine as if it had a GPU and a driver.

In mounts of its own, as root: device nodes, what the kernel tells of GPUs and of InfiniBand, the driver's libraries in
the linker's cache (NVIDIA's own, from `make originals`), CDI specifications, containerd's configuration, and an agent
that runs where the package puts one. What is made up means nothing: the tests are to pass without a look at any of it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.originals.packages import LIBRARIES, find_driver
from tests.shake.crowd import running

DRIVER: Final = "550"
PCI: Final = "0000:3b:00.0"
VERSION: Final = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\n"
NODES: Final = {"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (511, 0), "infiniband/uverbs0": (231, 192)}
FUNCTION: Final = f"/sys/bus/pci/devices/{PCI}"
SPECIFICATION: Final = """\
cdiVersion: 0.6.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    env: [A=b]
"""
FILES: Final[Mapping[str, str]] = {
    "/proc/driver/nvidia/version": VERSION,
    "/proc/driver/nvidia/params": "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
    f"/proc/driver/nvidia/gpus/{PCI}/information": f"Model: \t\t Tesla T4\nBus Location: \t {PCI}\n",
    "/proc/driver/nvidia/capabilities/mig/config": "DeviceFileMinor: 1\nDeviceFileMode: 256\n",
    f"{FUNCTION}/vendor": "0x10de\n",
    f"{FUNCTION}/device": "0x1eb8\n",
    f"{FUNCTION}/class": "0x030200\n",
    f"{FUNCTION}/numa_node": "0\n",
    "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "/etc/cdi/nvidia.yaml": SPECIFICATION,
    "/var/run/cdi/other.yaml": SPECIFICATION,
    "/etc/containerd/config.toml": 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = false\n',
}
WIDENED: Final = ("/dev", "/etc", "/run", "/var/lib", "/sys/bus", "/sys/class")
"""Directories in which something new is to be seen: what is there stays, and what is made stays in here."""
EMPTIED: Final = ("/sys/bus/pci", "/etc/cdi", "/run/cdi", "/etc/containerd")
COPIED: Final = ("/etc/ld.so.conf.d",)
REPLACED: Final = ("/proc/driver",)
INSIDE: Final = "--inside"


def main(arguments: Sequence[str]) -> int:
    """Go into mounts of one's own, make all of it, run the command; its status."""
    if arguments[:1] == [INSIDE]:
        scratch, *command = arguments[1:]
        make_machine(Path(scratch))
        with running(agent_command(), Path("/"), os.environ, subprocess.DEVNULL):
            return subprocess.run(command, check=False).returncode
    if problem := find_problem():
        sys.exit(problem)
    # Of this directory nothing is ever removed but itself: what is mounted below it are the machine's own directories.
    scratch = tempfile.mkdtemp(prefix="gpu-machine-")
    inside = (sys.executable, "-m", "tests.shake.gpu_machine", INSIDE, scratch, *arguments)
    try:
        return subprocess.run(("unshare", "--mount", "--propagation", "private", *inside), check=False).returncode
    finally:
        Path(scratch).rmdir()


def find_problem() -> str:
    """Why this machine cannot be made to seem to have a GPU; empty where it can."""
    if os.geteuid() != 0:
        return "needs root"
    return "" if find_driver(DRIVER) else f"driver {DRIVER} was not fetched: make originals"


def make_machine(scratch: Path) -> None:
    """Everything that a machine with a GPU has, seen by this process and its children alone."""
    _mount("-t", "tmpfs", "tmpfs", str(scratch))
    for place in WIDENED:
        widen(Path(place), scratch / place.strip("/").replace("/", "-"))
    # What was made there is seen in its place alone: who cleans up in /tmp must not reach the machine's directories.
    for place in (str(scratch), *REPLACED):
        _mount("-t", "tmpfs", "tmpfs", place)
    for name, (major, minor) in NODES.items():
        path = Path("/dev", name)
        path.parent.mkdir(exist_ok=True)
        os.mknod(path, 0o020666, os.makedev(major, minor))
    for name, text in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    driver = find_driver(DRIVER)
    assert driver is not None, "find_problem has named it"
    Path("/etc/ld.so.conf.d/gpu-machine.conf").write_text(f"{driver / LIBRARIES}\n")
    subprocess.run(["ldconfig", "-X"], check=True)


def widen(place: Path, scratch: Path) -> None:
    """A directory in memory in the place of this one, with all that is in it: below a bind mount, or as a copy."""
    scratch.mkdir()
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(scratch))
    for entry in sorted(place.iterdir()):
        copy = scratch / entry.name
        if entry == Path("/dev/ptmx"):
            copy.symlink_to("pts/ptmx")  # under a bind mount it finds no `pts` beside it
        elif entry.is_symlink():
            copy.symlink_to(entry.readlink())
        elif str(entry) in EMPTIED:
            copy.mkdir()
        elif str(entry) in COPIED:
            shutil.copytree(entry, copy, symlinks=True)
        elif entry.is_dir():
            copy.mkdir()
            _mount("--rbind", str(entry), str(copy))
        elif entry.is_file() and place == Path("/etc"):
            shutil.copy2(entry, copy)  # what is replaced by a rename must be no mount
        else:
            copy.touch()
            _mount("--bind", str(entry), str(copy))
    _mount("--rbind", str(scratch), str(place))


def agent_command() -> tuple[str, ...]:
    """An agent in the directories and at the port that are the default."""
    return (str(Path(sys.executable).with_name("nodeagent")), "run", "--gpus", "simulated:t4")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
