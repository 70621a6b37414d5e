"""The doctor's observations of files, sockets and system calls of this host; all functions block."""

import contextlib
import ctypes
import os
import shutil
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from nodeagent.app.runtime_edge import see_processes
from nodeagent.app.wiring.mps import find_driver_root
from nodeagent.cli.doctor.facts import DirectoryFacts, Facts, PluginSocketFacts, ProcessFacts, SocketFacts
from nodeagent.components.cdi.registry import SpecReading, is_spec_name, parse_spec
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.host.files.pseudo_file import list_names, list_processes, read_raw_attribute
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.inspection import ShimSight, inspect_shim
from nodeagent.edge.host.shim.users import count_toolkit_users
from nodeagent.edge.kubelet.checkpoint_file import CHECKPOINT_NAME, read_checkpoint
from nodeagent.edge.kubelet.errors import CheckpointUnreadable
from nodeagent.edge.mps.host import find_program
from nodeagent.model.cdi import SpecContent
from nodeagent.model.errors import MpsRefused
from nodeagent.model.ports import KubeletCheckpoint

CDI_DIRECTORIES = ("etc/cdi", "var/run/cdi")
"""Below the host's root; runtimes read these directories wherever this agent writes."""
TOOLKIT_TRACES = ("run/nvidia/toolkit/toolkit.pid",)
STRANGERS = (
    "nvidia-device-plugin",
    "k8s-device-plugin",
    "dcgm-exporter",
    "gpu-feature-discovery",
    "nvidia-mig-manager",
    "mps-control-daemon",
    "nvidia-toolkit",
    "nvidia-ctk-installer",
)
"""Programs with a part of nodeagent's work."""
DAY_SECONDS = 86400.0
_CREDENTIALS = struct.Struct("3i")
_TIMEX_BYTES = 512
_CLOCK_UNSYNCHRONISED = 5


def observe_this_host(settings: Settings, seen: Facts) -> Facts:
    """The observations of files, sockets and system calls of this host; blocks."""
    checkpoint, checkpoint_problem = _read_checkpoint(settings)
    return replace(
        seen,
        kubelet=observe_socket(settings.kubelet.device_plugins_dir / "kubelet.sock"),
        pod_resources=observe_socket(settings.kubelet.pod_resources_socket),
        checkpoint=checkpoint,
        checkpoint_problem=checkpoint_problem,
        specs=read_specs((*(settings.node.host_root / each for each in CDI_DIRECTORIES), settings.cdi.dir)),
        shim=_observe_shim(settings) if settings.runtime.shim else None,
        toolkit_containers=_count_toolkit_containers(settings) if settings.runtime.shim else 0,
        mps_problem=observe_mps(settings),
        mps_memory=observe_memory(settings),
        cgroup_v1=uses_cgroup_v1(settings.node.sys_dir),
        directories=tuple(observe_directory(path) for path in (settings.node.state_dir, settings.node.run_dir)),
        clock_synchronised=read_clock(),
        clock_behind_seconds=max(0.0, Path(__file__).stat().st_mtime - time.time() - DAY_SECONDS),
        strangers=find_strangers(settings.node.proc_dir),
        plugin_sockets=find_plugin_sockets(settings.kubelet.device_plugins_dir),
        foreign_files=tuple(str(path) for each in TOOLKIT_TRACES if (path := settings.node.host_root / each).exists()),
    )


def observe_mps(settings: Settings) -> str | None:
    """Why the MPS daemon's program cannot be run; empty where it can, `None` where MPS is off."""
    is_made_up = settings.gpus.simulated_profile is not None
    if is_made_up or not settings.uses_mps:
        return None
    root = find_driver_root(settings)
    try:
        program = settings.mps.program or Path(find_program(str(root).rstrip("/")))
    except MpsRefused as error:
        return str(error)
    place = root / program.relative_to("/")
    return "" if os.access(place, os.X_OK) else f"{place} is not a program that can be run"


def observe_memory(settings: Settings) -> str:
    """The shared memory directory of daemons and clients, where no file system is mounted on it."""
    place = settings.device_plugin.mps_root / "shm"
    is_own = settings.uses_mps and settings.mps.shared_memory == "own"
    return str(place) if is_own and place.is_dir() and not place.is_mount() else ""


def _observe_shim(settings: Settings) -> ShimSight:
    program, table = settings.shim.program, settings.shim.table_dir
    return inspect_shim(program, table, HostPaths(settings.node.host_root), settings.node.state_dir)


def _count_toolkit_containers(settings: Settings) -> int:
    ours = frozenset(map(str, (settings.shim.program, *settings.shim.further_names)))
    return count_toolkit_users(ours, HostPaths(settings.node.host_root), see_processes(settings))


def _read_checkpoint(settings: Settings) -> tuple[KubeletCheckpoint | None, str]:
    try:
        return read_checkpoint(settings.kubelet.device_plugins_dir / CHECKPOINT_NAME), ""
    except CheckpointUnreadable as error:
        return None, str(error)


def observe_socket(path: Path) -> SocketFacts:
    """Whether a server accepts connections on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            return SocketFacts(path=str(path), problem=(error.strerror or str(error)).lower())
    return SocketFacts(path=str(path))


def read_specs(directories: tuple[Path, ...]) -> tuple[SpecReading, ...]:
    """All specifications in the directories, each directory once under its real name."""
    return tuple(
        parse_spec(_read_spec(directory / name))
        for directory in _list_distinct(directories)
        for name in sorted(list_names(directory))
        if is_spec_name(name)
    )


def _list_distinct(directories: Iterable[Path]) -> list[Path]:
    """Each directory once: in a container the host's own may be mounted at several places."""
    known: dict[tuple[int, int], Path] = {}
    for directory in directories:
        with contextlib.suppress(OSError):  # a directory that is not there has no specifications
            found = directory.stat()
            known.setdefault((found.st_dev, found.st_ino), directory.resolve())
    return list(known.values())


def _read_spec(path: Path) -> SpecContent:
    try:
        return SpecContent(path=str(path), content=read_bounded(path))
    except HostError as error:
        return SpecContent(path=str(path), content=b"", problem=str(error))


def observe_directory(path: Path) -> DirectoryFacts:
    """The directory, or the nearest existing parent."""
    existing = next(candidate for candidate in (path, *path.parents) if candidate.exists())
    usage = shutil.disk_usage(existing)
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return DirectoryFacts(path=str(path), writable=writable, free_bytes=usage.free, total_bytes=usage.total)


def uses_cgroup_v1(sys_dir: Path) -> bool:
    """Whether the node's controllers are those of cgroup v1, as a kubelet judges: by the root of the hierarchies."""
    root = sys_dir / "fs" / "cgroup"
    return (root / "memory").is_dir() and not (root / "cgroup.controllers").exists()


def find_plugin_sockets(directory: Path) -> tuple[PluginSocketFacts, ...]:
    """Sockets with NVIDIA devices on offer to the kubelet, and the listening processes."""
    found = []
    for name in sorted(list_names(directory)):
        if name.startswith("nvidia") and name.endswith(".sock"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
                probe.settimeout(2.0)
                probe.connect(str(directory / name))
                credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                found.append(PluginSocketFacts(path=str(directory / name), pid=_CREDENTIALS.unpack(credentials)[0]))
    return tuple(found)


def read_clock() -> bool | None:
    """Whether the kernel's clock is synchronised; `None` when the kernel may not be asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if status < 0 else status != _CLOCK_UNSYNCHRONISED


def find_strangers(proc_dir: Path) -> tuple[ProcessFacts, ...]:
    """Processes of programs that do the same work."""
    found = []
    for process in list_processes(proc_dir):
        program = read_raw_attribute(process / "cmdline").split(b"\0")[0].decode("utf-8", "replace")
        if Path(program).name in STRANGERS:
            found.append(ProcessFacts(pid=int(process.name), program=Path(program).name))
    return tuple(found)
