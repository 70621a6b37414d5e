"""Scans for device nodes of any vendor: nodes below /dev, and the kernel's description of them below /sys.

Owns the scan, the cheap comparison that shows when a scan is due, the reading of single files of sysfs, and commands
that test a device. All work is done in threads, as a hanging driver must not hang the agent.
The comparison is made once a second: it reads the times of a few directories, works through every mount, and needs
none of the node's inotify instances, which run out on busy nodes and see no change of sysfs.
Refuses to open a device, and to know a device's purpose.
"""

import glob
import os
import signal
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from anyio import sleep

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.core.life.ticker import until_beat
from nodeagent.edge.host.devices.amd_partitions import is_partition, tie_partitions
from nodeagent.edge.host.devices.pci_functions import find_addresses, read_functions
from nodeagent.edge.host.devices.usb_places import find_usb
from nodeagent.edge.host.files.atomic_file import identify
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute, read_link_name, read_number
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.model.devices import HostDevices, HostNode, ScanRequest
from nodeagent.model.ids import PciAddress

POLL_SECONDS: Final = 1.0
POLL_INTERVAL_SECONDS: Final = 10.0
"""Deadline of one scan; on a healthy node a scan takes milliseconds."""
_SPARE_SECONDS: Final = 2.0
"""A thread's deadline beyond the deadline of the thread's command."""
_SAID_LIMIT: Final = 200
_CHARACTERS, _BLOCKS = "dev/char", "dev/block"

Fingerprint = tuple[object, ...]


class ScanRoots(NamedTuple):
    """The paths of the host's `/` and `/sys` in this process."""

    host: Path = Path("/")
    sys: Path = Path("/sys")


class HostScan:
    """Scans the host's device nodes; bounded in time."""

    def __init__(
        self, roots: ScanRoots, look: WorkerThread, commands: WorkerThread, *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        """`look` is the thread for files, `commands` the thread for commands."""
        self._roots, self._commands, self._poll_seconds = roots, commands, poll_seconds
        self._worker = HostWorker(look, roots.sys, POLL_INTERVAL_SECONDS)
        self._request = ScanRequest()
        self._seen: Fingerprint | None = None

    async def look(self, request: ScanRequest) -> HostDevices:
        """The devices requested."""
        return await self._worker.run(lambda: self._look(request), "looking for device nodes")

    async def wait_change(self) -> None:
        """Return when a device node requested in the last scan may have come or gone."""
        while True:
            await sleep(until_beat(self._poll_seconds))
            request, seen = self._request, self._seen
            now = await self._worker.run(lambda: read_fingerprint(self._roots, request), "watching device nodes")  # noqa: B023  # awaited at once
            if now != seen:
                return

    async def read_files(self, paths: Sequence[str]) -> Mapping[str, str]:
        """The texts of files below /sys; empty, or left out, for an unreadable file."""
        roots = self._roots

        def read() -> dict[str, str]:
            return {path: read_attribute(roots.sys / path) for path in paths if path}

        return await self._worker.run(read, "reading sysfs")

    async def run_command(self, command: Sequence[str], timeout_seconds: float) -> str:
        """Run a command in the host's root; empty when the command ends with 0 in time, else the failure."""
        host = self._roots.host
        argv = list(command) if host == Path("/") else ["chroot", str(host), *command]
        try:
            return await self._commands.run(
                lambda: run_command(argv, timeout_seconds),
                timeout_seconds=timeout_seconds + _SPARE_SECONDS,
                what=f"running {command[0]}",
            )
        except WorkerError as error:
            return str(error)

    def _look(self, request: ScanRequest) -> HostDevices:
        # Before the scan, so that the next comparison sees a change during the scan.
        self._request, self._seen = request, read_fingerprint(self._roots, request)
        return scan_host(self._roots, request)


def scan_host(roots: ScanRoots, request: ScanRequest) -> HostDevices:
    """One scan, in the calling thread."""
    found: dict[str, HostNode] = {}
    missing = []
    for pattern in request.patterns:
        paths = _match(roots.host, pattern)
        nodes = [node for path in paths if (node := _read_node(roots, path)) is not None]
        found.update((node.path, node) for node in nodes)
        if not nodes and not glob.has_magic(pattern):
            missing.append(pattern)
    for path in _list_known(roots, request):
        if path not in found and (node := _read_node(roots, path)) is not None:
            found[path] = node
    nodes = tie_partitions(roots.sys, (found[path] for path in sorted(found)))
    functions = read_functions(roots.sys, nodes, is_all=request.has_all_functions)
    return HostDevices(
        nodes=tuple(nodes), functions=functions, links=_read_links(roots.host, request.links), missing=tuple(missing)
    )


def read_fingerprint(roots: ScanRoots, request: ScanRequest) -> Fingerprint:
    """A value that stays equal until a node comes or goes."""
    places: dict[str, Fingerprint] = {}
    for pattern in (*request.patterns, *request.links):
        parts = pattern.split("/")
        for length in range(2, len(parts)):
            for path in _match(roots.host, "/".join(parts[:length])):
                places.setdefault(path, identify(_place(roots.host, path)))
    classes = [list_names(roots.sys / "class" / name) for name in request.sysfs_classes]
    numbers = [list_names(roots.sys / kind) for kind in (_CHARACTERS, _BLOCKS) if request.is_pci]
    return (tuple(places.items()), tuple(classes), tuple(numbers))


def _match(host: Path, pattern: str) -> list[str]:
    """The host's paths that match a pattern."""
    if not glob.has_magic(pattern):
        return [pattern] if os.path.lexists(_place(host, pattern)) else []
    return sorted(f"/{each}" for each in glob.glob(pattern.lstrip("/"), root_dir=host, include_hidden=True))  # noqa: PTH207


def _place(host: Path, path: str) -> str:
    return f"{host}/{path.lstrip('/')}" if str(host) != "/" else path


def _read_links(host: Path, patterns: Iterable[str]) -> dict[str, str]:
    """The host's links, each with the path to which it leads on the host."""
    links = {}
    for path in (path for pattern in patterns for path in _match(host, pattern)):
        with suppress(OSError):  # no link, or one just gone
            target = os.readlink(_place(host, path))  # noqa: PTH115  # text to text
            links[path] = os.path.normpath(f"{os.path.dirname(path)}/{target}" if target[0] != "/" else target)  # noqa: PTH120  # likewise
    return links


def _list_known(roots: ScanRoots, request: ScanRequest) -> Iterable[str]:
    """Nodes listed in sysfs: of the wanted classes, and of all PCI functions where PCI is wanted."""
    for name in request.sysfs_classes:
        for entry in list_names(roots.sys / "class" / name):
            yield from _find_path(roots.sys / "class" / name / entry)
    for kind in (_CHARACTERS, _BLOCKS) if request.is_pci else ():
        for number in list_names(roots.sys / kind):
            place = roots.sys / kind / number
            real = os.path.realpath(place)
            if find_addresses(real) or is_partition(real):
                yield from _find_path(place)


def _find_path(place: Path) -> Iterable[str]:
    """The node of a sysfs entry, by the kernel's name."""
    for line in read_attribute(place / "uevent").splitlines():
        if line.startswith("DEVNAME="):
            yield f"/dev/{line.removeprefix('DEVNAME=').removeprefix('/dev/')}"


def _read_node(roots: ScanRoots, path: str) -> HostNode | None:
    try:
        status = os.stat(_place(roots.host, path))  # noqa: PTH116  # likewise
    except OSError:
        return None
    is_block = stat.S_ISBLK(status.st_mode)
    if not is_block and not stat.S_ISCHR(status.st_mode):
        return None
    number = (os.major(status.st_rdev), os.minor(status.st_rdev))
    base = os.path.realpath(roots.sys)
    place = os.path.realpath(f"{base}/{_BLOCKS if is_block else _CHARACTERS}/{number[0]}:{number[1]}")
    if not os.path.isdir(place):  # noqa: PTH112  # a path object costs more than the call
        return HostNode(path=path, is_block=is_block, number=number)
    hardware = os.path.realpath(f"{place}/device") if os.path.lexists(f"{place}/device") else ""
    addresses = find_addresses(hardware or place)
    return HostNode(
        path=path,
        is_block=is_block,
        number=number,
        sysfs=os.path.relpath(place, base),
        sysfs_class=read_link_name(Path(place) / "subsystem"),
        hardware=os.path.relpath(hardware, base) if hardware else "",
        pci=PciAddress(addresses[-1]) if addresses else None,
        usb=find_usb(place, base),
        numa_node=_find_numa_node(hardware or place, base),
    )


def _find_numa_node(place: str, base: str) -> int | None:
    """The NUMA node of the nearest ancestor that has a NUMA file; -1 there stands for an unknown node."""
    while place.startswith(f"{base}/"):
        if (found := read_number(Path(place) / "numa_node")) is not None:
            return found if found >= 0 else None
        place = os.path.dirname(place)  # noqa: PTH120  # text to text
    return None


def run_command(argv: Sequence[str], timeout_seconds: float) -> str:
    """Empty when the command ends with 0 in time, else the failure; processes left behind are killed."""
    name = Path(argv[0]).name
    try:
        process = subprocess.Popen(  # noqa: S603  # the command of the node's own configuration
            argv,
            # No secrets from the agent's own environment.
            env={"PATH": os.environ.get("PATH", os.defpath)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return f"{name} cannot be started: {error.strerror or error}"
    try:
        said, _ = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return f"{name} did not end within {timeout_seconds:g} s"
    finally:
        _end_group(process)
    if process.returncode == 0:
        return ""
    text = " ".join(said.decode("utf-8", "replace").split())[:_SAID_LIMIT]
    return f"{name} ended with {process.returncode}" + (f": {text}" if text else "")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the command's remaining processes, close the pipe and reap the command."""
    with suppress(ProcessLookupError):  # all processes have ended
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
