"""Holders of the device files: process, command and pod.

Owns the walk over /proc. Refuses to call NVML for the list: the list is needed most when NVML must not be touched.
A process may end at any moment of the walk, so unreadable files are passed over.
"""

import re
from pathlib import Path

from nodeagent.edge.host.files.pseudo_file import list_names, list_processes, read_raw_attribute
from nodeagent.model.values import Value

DEVICE_PREFIX = "/dev/nvidia"
_COMMAND_LIMIT = 200
_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})")
_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:$|/)")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]+")


class DeviceHolder(Value, frozen=True):
    """A process with device files open."""

    pid: int
    command: str
    """The process's command line, or the kernel's short name; made printable."""
    devices: tuple[str, ...]
    pod_uid: str = ""
    container_id: str = ""


class ContainerPlace(Value, frozen=True):
    """Container and pod of a control group; empty for a process of the host."""

    pod_uid: str = ""
    container_id: str = ""


def read_device_holders(proc_root: Path = Path("/proc"), *, prefix: str = DEVICE_PREFIX) -> tuple[DeviceHolder, ...]:
    """All processes with an open device file, by pid; without root, only processes of the agent's own user."""
    holders = (_read_holder(process, prefix) for process in list_processes(proc_root))
    return tuple(holder for holder in holders if holder is not None)


def parse_cgroup(text: str) -> ContainerPlace:
    """Find pod and container in /proc/PID/cgroup, of either cgroup version and either cgroup driver."""
    pod, container = _POD.search(text), None
    for line in text.splitlines():
        container = _CONTAINER.search(line) or container
    return ContainerPlace(
        pod_uid=_normalise_uid(pod[1]) if pod else "",
        container_id=container[1] if container else "",
    )


def _read_holder(process: Path, prefix: str) -> DeviceHolder | None:
    devices = _read_devices(process / "fd", prefix)
    if not devices:
        return None
    place = parse_cgroup(read_raw_attribute(process / "cgroup").decode("utf-8", "replace"))
    return DeviceHolder(
        pid=int(process.name),
        command=read_command(process),
        devices=devices,
        pod_uid=place.pod_uid,
        container_id=place.container_id,
    )


def _read_devices(descriptors: Path, prefix: str) -> tuple[str, ...]:
    devices: set[str] = set()
    for name in list_names(descriptors):
        try:
            target = str((descriptors / name).readlink())
        except OSError:
            continue
        if target.startswith(prefix):
            devices.add(target.removesuffix(" (deleted)"))
    return tuple(sorted(devices))


def read_command(process: Path) -> str:
    """The command line, or the kernel's short name; printable, and of a bounded length."""
    raw = read_raw_attribute(process / "cmdline", limit_bytes=4096) or read_raw_attribute(process / "comm")
    return _UNPRINTABLE.sub(" ", raw.decode("utf-8", "replace")).strip()[:_COMMAND_LIMIT]


def _normalise_uid(uid: str) -> str:
    # The systemd cgroup driver writes a UID's dashes as underscores; static pods have a hash without dashes.
    return uid.replace("_", "-")
